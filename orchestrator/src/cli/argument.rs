//! Arguments that stand for a document: given in place, in a file, or on standard input.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::CliError;

/// Reads JSON given in place, as `@file`, or as `-` for standard input.
pub(super) fn json(flag: &str, text: &str) -> Result<Value, CliError> {
    let body = match (text, text.strip_prefix('@')) {
        ("-", _) => bytes(flag, Path::new("-"))?,
        (_, Some(path)) => bytes(flag, Path::new(path))?,
        (_, None) => text.as_bytes().to_vec(),
    };
    serde_json::from_slice(&body)
        .map_err(|error| CliError::Argument(format!("{flag}: not JSON: {error}")))
}

/// Reads a file, or standard input for `-`.
pub(super) fn bytes(flag: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let mut body = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut body).map(|_| ())
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut body).map(|_| ()))
    };
    match read {
        Ok(()) => Ok(body),
        Err(error) => Err(CliError::Argument(format!(
            "{flag}: {} cannot be read: {error}",
            path.display()
        ))),
    }
}
