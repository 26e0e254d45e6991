//! Draws what benches measured, for the documents: an SVG for light and one for dark pages.
//!
//! `cargo run --release --package bakery-lock-benches --example plots` reads the recorded figures,
//! `benches/locks/recorded.json` and `benches/scale/recorded.json`, and writes `docs/images`.

mod chart;
mod figures;
mod theme;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use common::record::Record;
use serde::Deserialize;

use crate::theme::Theme;

/// Draws what benches measured.
#[derive(Debug, Parser)]
#[command(name = "plots")]
struct Arguments {
    /// What `cargo bench --bench locks` kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/locks/recorded.json"))]
    locks: PathBuf,
    /// What `cargo bench --bench scale` kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/scale/recorded.json"))]
    scale: PathBuf,
    /// Where the images go.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images"))]
    images: PathBuf,
}

/// What is drawn of a run.
#[derive(Deserialize)]
struct Run {
    records: Vec<Record>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let locks = records(&arguments.locks)?;
    let scale = records(&arguments.scale)?;
    for theme in [Theme::LIGHT, Theme::DARK] {
        let image = |name: &str| arguments.images.join(format!("{name}-{}.svg", theme.name));
        figures::uncontended(&locks).draw(&image("benchmark-uncontended"), &theme)?;
        figures::handoffs(&locks).draw(&image("benchmark-handoffs"), &theme)?;
        figures::distinct(&locks).draw(&image("benchmark-distinct"), &theme)?;
        figures::operations(&scale).draw(&image("benchmark-operations"), &theme)?;
        figures::age(&scale).draw(&image("benchmark-age"), &theme)?;
    }
    println!("drawn: {}/benchmark-*.svg", arguments.images.display());
    Ok(())
}

fn records(file: &Path) -> Result<Vec<Record>> {
    let read = || format!("could not read {}", file.display());
    let text = fs::read_to_string(file).with_context(read)?;
    Ok(serde_json::from_str::<Run>(&text).with_context(read)?.records)
}
