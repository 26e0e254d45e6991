//! Text in commands that errors suggest.

use std::borrow::Cow;

/// A text as an operand of a command in a shell: quoted where a shell would act on a character, and
/// after `--` if it begins with a dash.
///
/// # Example
///
/// ```
/// use bakery_lock::admin::shell_operand;
///
/// assert_eq!(shell_operand("web-1.example.org"), "web-1.example.org");
/// assert_eq!(shell_operand("a;b"), "'a;b'");
/// assert_eq!(shell_operand("-n"), "-- -n");
/// ```
#[must_use]
pub fn shell_operand(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let is_word = !text.is_empty() && text.chars().all(is_plain);
    match (is_word, text.starts_with('-')) {
        (true, false) => Cow::Borrowed(text),
        (true, true) => Cow::Owned(format!("-- {text}")),
        (false, is_dashed) => {
            let end_of_options = if is_dashed { "-- " } else { "" };
            Cow::Owned(format!("{end_of_options}'{}'", text.replace('\'', r"'\''")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn shell_takes_operands_as_they_are() {
        for text in
            ["", "a", "a b", "$(id)", "`id`", "a;b", "it's", "\"", "*", "~", "a\nb", "größe"]
        {
            for text in [text.to_owned(), format!("-{text}")] {
                let script =
                    format!("printf '<%s>' {}", shell_operand(&text).replacen("-- ", "", 1));
                let output = Command::new("sh").args(["-c", &script]).output();
                let output = output.expect("a shell starts").stdout;
                assert_eq!(String::from_utf8_lossy(&output), format!("<{text}>"));
                assert_eq!(shell_operand(&text).starts_with("-- "), text.starts_with('-'));
            }
        }
    }
}
