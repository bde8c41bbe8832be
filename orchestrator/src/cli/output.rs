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

/// Writes one JSON value as one line, for a program that reads line by line.
pub(super) fn write_json_line(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    write(&format!("{text}\n"))
}

/// A remark beside the output, on standard error.
pub(super) fn remark(text: &str) {
    eprintln!("{text}");
}

/// Columns without borders: what stands in a cell can be copied, and no line is broken.
pub(super) fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Disabled)
        .set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| clean(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Text from outside as one line: a provider's words must neither tear a row apart nor command a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
