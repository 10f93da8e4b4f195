//! Where the development servers are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The settings of `.dev/env`, which `./dev servers` writes.
#[derive(Debug)]
pub struct Env {
    values: BTreeMap<String, String>,
    root: PathBuf,
}

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let root = root();
    let file = root.join(".dev/env");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; run ./dev servers first", file.display()));
    let values = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
        .collect();
    Env { values, root }
});

/// The checkout: the nearest folder above this crate that has a `dev` script.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("dev").is_file() && folder.join("migrations").is_dir())
        .unwrap_or_else(|| panic!("no checkout above {}", env!("CARGO_MANIFEST_DIR")))
        .to_owned()
}

impl Env {
    /// The settings.
    pub fn get() -> &'static Self {
        &ENV
    }

    /// One of them.
    pub fn value(&self, name: &str) -> &str {
        self.values
            .get(name)
            .unwrap_or_else(|| panic!("{name} is missing in .dev/env; run ./dev servers again"))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The checkout's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }
}
