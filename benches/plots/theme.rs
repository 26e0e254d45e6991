//! Colours for light and for dark pages.

use plotters::style::RGBColor;

/// The colours of an image.
#[derive(Debug)]
pub(crate) struct Theme {
    pub(crate) name: &'static str,
    pub(crate) background: RGBColor,
    pub(crate) text: RGBColor,
    pub(crate) grid: RGBColor,
    /// In the order of the series: as many as can be told apart, by colour-blind readers too
    /// (Okabe and Ito 2008).
    pub(crate) series: [RGBColor; 9],
}

impl Theme {
    pub(crate) const LIGHT: Theme = Theme {
        name: "light",
        background: RGBColor(255, 255, 255),
        text: RGBColor(36, 41, 47),
        grid: RGBColor(225, 228, 232),
        series: [
            RGBColor(0, 114, 178),
            RGBColor(213, 94, 0),
            RGBColor(0, 158, 115),
            RGBColor(204, 121, 167),
            RGBColor(170, 120, 0),
            RGBColor(86, 180, 233),
            RGBColor(110, 110, 110),
            RGBColor(120, 94, 240),
            RGBColor(0, 0, 0),
        ],
    };

    pub(crate) const DARK: Theme = Theme {
        name: "dark",
        background: RGBColor(13, 17, 23),
        text: RGBColor(201, 209, 217),
        grid: RGBColor(48, 54, 61),
        series: [
            RGBColor(86, 180, 233),
            RGBColor(240, 130, 50),
            RGBColor(60, 200, 150),
            RGBColor(220, 150, 190),
            RGBColor(230, 159, 0),
            RGBColor(80, 140, 220),
            RGBColor(160, 160, 160),
            RGBColor(160, 140, 255),
            RGBColor(255, 255, 255),
        ],
    };
}
