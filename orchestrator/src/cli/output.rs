//! What commands print: text for a person, JSON for a program.

use serde::Serialize;
use std::io::{self, Write as _};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Format {
    /// For a person.
    #[default]
    Table,
    /// For a program; fields are added, never renamed.
    Json,
}

/// The flag.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct OutputFlag {
    /// What to print
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub(super) output: Format,
}

/// Writes text to standard output.
pub(super) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one JSON value, indented.
pub(super) fn write_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    write(&format!("{text}\n"))
}
