//! Names of hosts.

use thiserror::Error;

use crate::options::shown;

/// The longest host name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// An invalid host name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("host name {name:?} {problem}; use 1 to {NAME_BYTES_MAX} bytes of visible text")]
pub struct HostNameError {
    name: String,
    problem: String,
}

/// Checks a host name: 1 to 255 bytes of visible text, without whitespace and commas.
///
/// # Errors
///
/// [`HostNameError`] states the problem.
pub fn check_name(name: &str) -> Result<(), HostNameError> {
    let problem = match name.chars().find(|&c| is_unfit(c)) {
        _ if name.is_empty() => "is empty".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => format!("has {} bytes", name.len()),
        Some(unfit) => format!("contains {unfit:?}"),
        None => return Ok(()),
    };
    Err(HostNameError { name: shown(name), problem })
}

/// The name of this machine: its host name in the registry by default.
#[must_use]
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether a character makes a name hard to read, type or list: commas, whitespace, control
/// characters, and invisible ones.
fn is_unfit(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    c == ',' || c.is_whitespace() || c.is_control() || invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_host_has_the_name_that_the_kernel_tells() {
        let told = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux tells it");
        assert_eq!(this_host(), told.trim_end());
    }

    #[test]
    fn names_are_visible_text() {
        let longest = "é".repeat(127) + "x";
        for name in ["a", "web-1.example.org", "größe", "主机", "a;b", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = longest.clone() + "x";
        let unfit = ["", "a b", "a,b", "a\t", "\n", "a\0", "\u{200b}", "a\u{202e}b", "\u{a0}"];
        for name in unfit.into_iter().chain([too_long.as_str()]) {
            let error = check_name(name).expect_err("the name is refused").to_string();
            assert!(error.contains("use 1 to 255 bytes of visible text"), "{error}");
        }
        assert!(check_name(&this_host()).is_ok());
    }
}
