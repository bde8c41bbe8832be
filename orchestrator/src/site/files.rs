//! The files of a site: configurations from `nats/`, certificates, stores and logs.

use super::login::Leaf;
use super::ports::{self, Reserved};
use super::{Core, Place, Server, SiteError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const DEV_ENV: &str = include_str!("../../../nats/dev.env");
const DEV_CERTS: &str = include_str!("../../../nats/dev-certs.sh");
const ONE_NODE: &str = "profiles/one-node.conf";

macro_rules! configurations {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../../nats/", $path)))),*]
    };
}

const CONFIGURATIONS: [(&str, &str); 11] = configurations![
    "core.conf",
    "core-common.conf",
    "core-leafnodes.conf",
    "core-accounts.conf",
    "leaf-eu.conf",
    "leaf-asia.conf",
    "profiles/one-node.conf",
    "profiles/three-nodes-1.conf",
    "profiles/three-nodes-2.conf",
    "profiles/three-nodes-3.conf",
    "profiles/three-nodes-routes.conf",
];

/// Where everything lies.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Directory {
    pub(super) fn make(place: &Place) -> Result<Self, SiteError> {
        match place {
            Place::Temporary => {
                let temporary = tempfile::Builder::new()
                    .prefix("saga-site-")
                    .tempdir()
                    .map_err(io("temporary directory"))?;
                Ok(Self {
                    path: temporary.path().to_owned(),
                    temporary: Some(temporary),
                })
            }
            Place::Kept(path) => {
                std::fs::create_dir_all(path).map_err(io(&path.display().to_string()))?;
                let path = path
                    .canonicalize()
                    .map_err(io(&path.display().to_string()))?;
                Ok(Self {
                    path,
                    temporary: None,
                })
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.keep();
            eprintln!("logs and stores are kept in {}", path.display());
        }
    }
}

/// Writes configurations and certificates, and makes the log directory.
pub(super) fn write(dir: &Path, sync_interval: Option<&str>) -> Result<(), SiteError> {
    let nats = dir.join("nats");
    for sub in [dir.join("logs"), nats.join("profiles")] {
        std::fs::create_dir_all(&sub).map_err(io(&sub.display().to_string()))?;
    }
    for (path, text) in CONFIGURATIONS {
        let file = nats.join(path);
        let text = match sync_interval {
            Some(interval) if path == ONE_NODE => text.replace(
                "sync_interval: always",
                &format!("sync_interval: {interval}"),
            ),
            _ => text.to_owned(),
        };
        std::fs::write(&file, text).map_err(io(&file.display().to_string()))?;
    }
    let script = nats.join("dev-certs.sh");
    std::fs::write(&script, DEV_CERTS).map_err(io(&script.display().to_string()))?;
    let made = Command::new("sh")
        .arg(&script)
        .arg(dir.join("certs"))
        .stdin(Stdio::null())
        .output()
        .map_err(io("sh nats/dev-certs.sh"))?;
    if made.status.success() {
        Ok(())
    } else {
        Err(SiteError::Certificates(
            String::from_utf8_lossy(&made.stderr).trim().to_owned(),
        ))
    }
}

/// What the configurations read: `dev.env` with this site's addresses and stores.
pub(super) fn environment(addresses: &Addresses) -> BTreeMap<String, String> {
    let mut environment = dev_env();
    environment.extend(addresses.values.clone());
    environment
}

fn dev_env() -> BTreeMap<String, String> {
    DEV_ENV
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Variables of `dev.env` that hold addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    values: BTreeMap<String, String>,
    _reserved: Vec<Reserved>,
}

impl Addresses {
    /// Those of `dev.env`, for a system at its usual ports.
    pub(super) fn declared() -> Self {
        let mut values = dev_env();
        values.retain(|name, _| is_address(name));
        Self {
            values,
            _reserved: Vec::new(),
        }
    }

    /// Free ports for the same variables.
    pub(super) fn free() -> Result<Self, SiteError> {
        let mut values = Self::declared().values;
        // A route or a remote names a port that another variable listens on: keep the pairs together.
        let mut ports: BTreeMap<String, Reserved> = BTreeMap::new();
        for value in values.values_mut() {
            let Some((head, port)) = value.rsplit_once(':') else {
                continue;
            };
            let free = match ports.get(port) {
                Some(reserved) => reserved.port,
                None => {
                    let reserved = ports::free()?;
                    let free = reserved.port;
                    ports.insert(port.to_owned(), reserved);
                    free
                }
            };
            *value = format!("{head}:{free}");
        }
        Ok(Self {
            values,
            _reserved: ports.into_values().collect(),
        })
    }

    pub(super) fn client(&self, core: Core, server: Server) -> String {
        format!("nats://{}", self.value(core, server, "LISTEN"))
    }

    pub(super) fn http(&self, core: Core, server: Server) -> String {
        self.value(core, server, "HTTP")
    }

    fn value(&self, core: Core, server: Server, what: &str) -> String {
        let name = match (core, server) {
            (Core::OneNode, Server::Core(_)) => format!("CORE_{what}"),
            (Core::ThreeNodes, Server::Core(node)) => format!("CORE_{node}_{what}"),
            (_, Server::Leaf(Leaf::Eu)) => format!("LEAF_EU_{what}"),
            (_, Server::Leaf(Leaf::Asia)) => format!("LEAF_ASIA_{what}"),
        };
        self.values.get(&name).cloned().unwrap_or_default()
    }
}

fn is_address(name: &str) -> bool {
    ["_LISTEN", "_HTTP", "_REMOTE", "_ROUTE"]
        .iter()
        .any(|end| name.ends_with(end))
}

pub(super) fn io(what: &str) -> impl FnOnce(std::io::Error) -> SiteError {
    let what = what.to_owned();
    move |source| SiteError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_dials_the_port_its_core_listens_on() {
        let addresses = Addresses::free().expect("ports");
        let port = |name: &str| {
            addresses.values[name]
                .rsplit_once(':')
                .expect("port")
                .1
                .to_owned()
        };
        assert_eq!(port("LEAF_EU_REMOTE"), port("CORE_LEAF_LISTEN"));
        assert_eq!(port("CORE_2_ROUTE"), port("CORE_2_CLUSTER_LISTEN"));
        assert_ne!(port("LEAF_EU_LISTEN"), port("LEAF_ASIA_LISTEN"));
    }

    #[test]
    fn every_variable_of_the_configurations_is_in_dev_env() {
        let declared = dev_env();
        for (path, text) in CONFIGURATIONS {
            let code = text
                .lines()
                .map(|line| line.split('#').next().unwrap_or_default());
            for word in code.flat_map(|line| line.split([' ', ',', '}'])) {
                if let Some(name) = word.strip_prefix('$') {
                    assert!(declared.contains_key(name), "{path} reads ${name}");
                }
            }
        }
    }
}
