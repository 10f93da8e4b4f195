//! A JWK set in a file: which keys there are, and which one algorithm each is for.
//!
//! The file is read when a token names a key it lacks, at most every [`READ_AGAIN_AFTER`], and in any case when what is
//! known is older than [`KNOWN_FOR`], so that a key taken out of the file ends. A file that can't be read leaves the
//! keys known so far; where there never were any, nobody can be let in or refused, and that is a 503.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::Problem;

/// Shortest time between two reads: tokens with made-up key ids must not make us read all the time.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Longest time keys are taken as known.
const KNOWN_FOR: Duration = Duration::from_mins(5);
/// Longest file read, in bytes: a set has a handful of keys.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// A key, and the only algorithm it is used with.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) decoding: DecodingKey,
    pub(crate) algorithm: Algorithm,
}

pub(crate) struct KeySet {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: Option<HashMap<String, Key>>,
    tried_at: Option<Instant>,
}

impl KeySet {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::default() }
    }

    /// The key of this id; `None`: the set has none.
    pub(crate) async fn key(&self, kid: &str) -> Result<Option<Key>, Problem> {
        let mut known = self.known.lock().await;
        let age = known.tried_at.map(|at| at.elapsed());
        let is_known = known.keys.as_ref().is_some_and(|keys| keys.contains_key(kid));
        let is_due = match age {
            None => true,
            Some(age) => age >= KNOWN_FOR || (!is_known && age >= READ_AGAIN_AFTER),
        };
        if is_due {
            known.tried_at = Some(Instant::now());
            match self.read().await {
                Ok(keys) => known.keys = Some(keys),
                Err(error) => {
                    tracing::error!(%error, path = %self.path.display(), "the key set can't be read");
                }
            }
        }
        match &known.keys {
            Some(keys) => Ok(keys.get(kid).cloned()),
            None => Err(Problem::KeysUnavailable),
        }
    }

    async fn read(&self) -> std::io::Result<HashMap<String, Key>> {
        let mut text = Vec::new();
        tokio::fs::File::open(&self.path).await?.take(FILE_BYTES_MAX).read_to_end(&mut text).await?;
        let set: JwkSet = serde_json::from_slice(&text)?;
        Ok(set.keys.iter().filter_map(usable).collect())
    }
}

/// A key with an id that signs with an algorithm of ours; others are left alone, for a set may have keys for others.
fn usable(jwk: &Jwk) -> Option<(String, Key)> {
    let kid = jwk.common.key_id.clone()?;
    let algorithm = algorithm(jwk)?;
    let is_for_signatures =
        jwk.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let is_declared_so =
        jwk.common.key_algorithm.is_none_or(|declared| declared == KeyAlgorithm::from(algorithm));
    if !is_for_signatures || !is_declared_so {
        return None;
    }
    Some((kid, Key { decoding: DecodingKey::from_jwk(jwk).ok()?, algorithm }))
}

/// The key's type decides. A symmetric key in a file of public keys is nobody's.
#[expect(clippy::wildcard_enum_match_arm, reason = "the crate's enum is non_exhaustive")]
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Some(Algorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Some(Algorithm::ES256),
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(Algorithm::EdDSA)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A set with one key under each of these names; its bytes need not be a point on a curve to be told apart.
    fn write(path: &PathBuf, kids: &[&str]) {
        let keys: Vec<_> = kids
            .iter()
            .map(|kid| json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": "A".repeat(43) }))
            .collect();
        std::fs::write(path, json!({ "keys": keys }).to_string()).unwrap();
    }

    async fn has(set: &KeySet, kid: &str) -> bool {
        set.key(kid).await.unwrap().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_key_is_found_after_the_shortest_wait_and_a_removed_one_ends() {
        let path = std::env::temp_dir().join(format!("arkiv-jwks-{}.json", cards::Ids.message()));
        write(&path, &["a"]);
        let set = KeySet::new(path.clone());
        assert!(has(&set, "a").await);
        write(&path, &["b"]);
        // However many made-up ids come, the file is not read again yet.
        let almost = READ_AGAIN_AFTER.saturating_sub(Duration::from_millis(1));
        tokio::time::advance(almost).await;
        assert!(!has(&set, "b").await && has(&set, "a").await);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(has(&set, "b").await && !has(&set, "a").await);
        // A file that can't be read leaves what is known.
        std::fs::write(&path, "{").unwrap();
        tokio::time::advance(KNOWN_FOR).await;
        assert!(has(&set, "b").await);
        // A key that is asked for all the time ends too.
        write(&path, &["c"]);
        tokio::time::advance(KNOWN_FOR).await;
        assert!(!has(&set, "b").await);
        std::fs::remove_file(&path).unwrap();
    }
}
