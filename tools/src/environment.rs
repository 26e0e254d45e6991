//! Variables of the environment that only the tools read. The others are the library's.

use std::env::{self, VarError};

use crate::failure::Failure;

/// The value of a variable, unless it is unset or empty.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::Usage(
            format!("the variable {name} can't be used: it is not UTF-8").into(),
        )),
    }
}
