//! Contexts of the NATS CLI, `~/.config/nats/context/<name>.json`.

use super::{NatsOptionsError, file, setting};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A context file as the NATS CLI writes it; what we do not use is left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContextFile {
    pub(super) url: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) token: String,
    pub(super) creds: String,
    pub(super) nkey: String,
    pub(super) nsc: String,
    pub(super) user_jwt: String,
    pub(super) ca: String,
    pub(super) cert: String,
    pub(super) key: String,
    pub(super) tls_first: bool,
    pub(super) inbox_prefix: String,
}

/// Reads a context by name, or by path when it ends in `.json`.
pub(super) fn read_context(name: &str) -> Result<ContextFile, NatsOptionsError> {
    let path = if Path::new(name).extension().is_some_and(|end| end == "json") {
        expand_home(Path::new(name))
    } else if name.is_empty() || name.contains(['/', '\\']) || name.contains("..") {
        return Err(setting(
            "nats.context",
            "is a name such as `eu`, or a path ending in .json",
        ));
    } else {
        context_directory()?.join(format!("{name}.json"))
    };
    let text =
        std::fs::read_to_string(&path).map_err(|source| file("nats.context", &path, source))?;
    let context: ContextFile = serde_json::from_str(&text)
        .map_err(|error| setting("nats.context", &format!("{}: {error}", path.display())))?;
    for (field, value) in [("nsc", &context.nsc), ("user_jwt", &context.user_jwt)] {
        if !value.is_empty() && context.creds.is_empty() {
            return Err(setting(
                "nats.context",
                &format!(
                    "{}: `{field}` is not read here; put a credentials file in `creds`",
                    path.display()
                ),
            ));
        }
    }
    Ok(context)
}

/// Where the NATS CLI keeps its contexts.
fn context_directory() -> Result<PathBuf, NatsOptionsError> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .ok_or_else(|| {
            setting(
                "nats.context",
                "neither XDG_CONFIG_HOME nor HOME is set; give the path of the context file",
            )
        })?;
    Ok(base.join("nats").join("context"))
}

pub(super) fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        (Ok(_) | Err(_), _) => path.to_owned(),
    }
}
