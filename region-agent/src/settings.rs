//! Settings in layers: flags over environment over a TOML file over defaults. Shared by both binaries.
//!
//! Everything is parsed before anything connects; a bad value is one line that names it.

use crate::nats_options::NatsOptionsError;
use figment::Figment;
use figment::providers::{Format as _, Serialized, Toml};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// A value as written. Environment variables are text and TOML has numbers; both are read here, and
/// parsed by [`parse`], which can name the field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(pub String);

/// A setting that cannot be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The value of one field.
    #[error("{field}: {problem}")]
    Field {
        /// The field, as named in TOML.
        field: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The TOML file is missing, or not TOML, or holds keys we do not know.
    #[error("config file {path}: {problem}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The NATS options.
    #[error(transparent)]
    Nats(NatsOptionsError),
}

/// Lays environment variables over a TOML file; flags come on top with [`Figment::merge`]. `S` is what
/// the file may hold, `names` are the variables (without prefix) and the keys they set.
///
/// # Errors
/// [`ConfigError::File`] when the file is not an `S`.
pub fn layers<S: DeserializeOwned>(
    file: Option<&Path>,
    names: impl IntoIterator<Item = (&'static str, &'static str)>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Figment, ConfigError> {
    let mut figment = Figment::new();
    if let Some(path) = file {
        // Read alone first, so that an unknown key is reported with its file.
        figment = Figment::from(Toml::file_exact(path));
        figment.extract::<S>().map_err(|error| ConfigError::File {
            path: path.display().to_string(),
            problem: one_line(&error),
        })?;
    }
    // Only names we know: the surroundings may set others with our prefix, as Kubernetes does.
    for (name, key) in names {
        if let Some(value) = environment(name) {
            figment = figment.merge(Serialized::default(key, value));
        }
    }
    Ok(figment)
}

/// Reads all layers as one value.
///
/// # Errors
/// [`ConfigError::Field`], naming the key.
pub fn extract<S: DeserializeOwned>(figment: &Figment) -> Result<S, ConfigError> {
    figment
        .extract()
        .map_err(|error| field("settings", &one_line(&error)))
}

/// A figment error as one line.
#[must_use]
pub fn one_line(error: &figment::Error) -> String {
    error.to_string().replace('\n', " ")
}

/// Parses a value, if there is one.
///
/// # Errors
/// [`ConfigError::Field`] with the field's name and the value.
pub fn parse<T: FromStr<Err: fmt::Display>>(
    name: &str,
    text: Option<Text>,
) -> Result<Option<T>, ConfigError> {
    text.map(|text| {
        text.0
            .parse()
            .map_err(|error| field(name, &format!("{:?}: {error}", text.0)))
    })
    .transpose()
}

/// Parses a length of time such as `20s`, if there is one.
///
/// # Errors
/// [`ConfigError::Field`] with the field's name and the value.
pub fn parse_duration(name: &str, text: Option<Text>) -> Result<Option<Duration>, ConfigError> {
    text.map(|text| {
        humantime::parse_duration(&text.0)
            .map_err(|error| field(name, &format!("{:?}: {error}", text.0)))
    })
    .transpose()
}

/// The error of one field.
#[must_use]
pub fn field(name: &str, problem: &str) -> ConfigError {
    ConfigError::Field {
        field: name.to_owned(),
        problem: problem.to_owned(),
    }
}

impl FromStr for Text {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a whole number, true or false")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
