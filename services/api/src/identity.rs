//! Who asks: a Bearer JWT becomes a subject, or a 401 (RFC 6750, RFC 8725).
//!
//! The algorithm is never the token's choice: HS256 for a secret, and for a key of a set the one algorithm its type has.
//! `exp`, `iss`, `aud` and `sub` are required, `nbf` is heeded, clocks may differ by 30 s. A `kid` is only ever looked up
//! in the key set; `jku`, `jwk` and `x5u` of a token are ignored.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Map, Value, json};

use crate::error::Problem;
use crate::jwks::KeySet;
use crate::{Api, ApiError};

/// How tokens are checked.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// With what.
    pub key: JwtKey,
    /// The exact `iss`.
    pub issuer: String,
    /// What `aud` must name.
    pub audience: String,
}

/// What signatures are checked with.
#[derive(Clone)]
pub enum JwtKey {
    /// A secret shared with the issuer: HS256.
    Hs256(Vec<u8>),
    /// A JWK set in a file, read again when a token names a key it lacks: RS256, ES256, `EdDSA`.
    JwksFile(PathBuf),
}

impl std::fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hs256(_) => f.write_str("Hs256(***)"),
            Self::JwksFile(path) => f.debug_tuple("JwksFile").field(path).finish(),
        }
    }
}

/// RFC 7518, 3.2: a key for HS256 has at least as many bytes as the hash.
const SECRET_BYTES_MIN: usize = 32;
/// How far clocks may differ, in seconds.
const LEEWAY_SECONDS: u64 = 30;
/// Longest token looked at, in bytes: real ones have one or two thousand.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Longest subject, in characters; the database's CHECK says the same.
const SUBJECT_CHARACTERS_MAX: usize = 255;

/// Checks tokens.
pub(crate) struct Verifier {
    keys: Keys,
    issuer: String,
    audience: String,
}

enum Keys {
    Secret { decoding: DecodingKey, encoding: EncodingKey },
    Set(KeySet),
}

impl Verifier {
    pub(crate) fn new(settings: &JwtSettings) -> Result<Self, ApiError> {
        let keys = match &settings.key {
            JwtKey::Hs256(secret) => secret_keys(secret)?,
            JwtKey::JwksFile(path) => Keys::Set(KeySet::new(path.clone())),
        };
        for (name, value) in [("jwt.issuer", &settings.issuer), ("jwt.audience", &settings.audience)] {
            if value.is_empty() {
                return Err(ApiError::Setting { name, detail: "must not be empty".to_owned() });
            }
        }
        Ok(Self { keys, issuer: settings.issuer.clone(), audience: settings.audience.clone() })
    }

    /// The subject of a good token.
    pub(crate) async fn subject(&self, token: &str) -> Result<String, Problem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Problem::InvalidToken("the token is too long"));
        }
        match &self.keys {
            Keys::Secret { decoding, .. } => self.check(token, decoding, Algorithm::HS256),
            Keys::Set(set) => {
                let header = jsonwebtoken::decode_header(token).map_err(|error| refusal(&error))?;
                let kid = header.kid.ok_or(Problem::InvalidToken("the token names no key"))?;
                let key = set.key(&kid).await?.ok_or(Problem::InvalidToken("no key has the token's kid"))?;
                self.check(token, &key.decoding, key.algorithm)
            }
        }
    }

    fn check(&self, token: &str, key: &DecodingKey, algorithm: Algorithm) -> Result<String, Problem> {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        // A map, not a struct: serde would fill a struct from an array by position.
        let mut claims = jsonwebtoken::decode::<Map<String, Value>>(token, key, &validation)
            .map_err(|error| refusal(&error))?
            .claims;
        // The crate takes several issuers in one token; RFC 7519 does not.
        if claims.get("iss").and_then(Value::as_str) != Some(self.issuer.as_str()) {
            return Err(Problem::InvalidToken("the claim iss is not one text"));
        }
        match claims.remove("sub") {
            Some(Value::String(subject)) if is_subject(&subject) => Ok(subject),
            _ => Err(Problem::InvalidToken("the claim sub is no text of 1 to 255 characters")),
        }
    }

    /// Whether tokens can be made here: for the development issuer only.
    pub(crate) fn can_issue(&self) -> bool {
        matches!(self.keys, Keys::Secret { .. })
    }

    /// A token of our own; `None` where only others sign.
    pub(crate) fn issue(&self, subject: &str, ends_at_seconds: i64) -> Option<String> {
        let Keys::Secret { encoding, .. } = &self.keys else { return None };
        let claims = json!({
            "iss": self.issuer, "aud": self.audience, "sub": subject, "exp": ends_at_seconds
        });
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, encoding)
            .inspect_err(|error| tracing::error!(%error, "a token could not be signed"))
            .ok()
    }
}

fn secret_keys(secret: &[u8]) -> Result<Keys, ApiError> {
    let refused = |detail: String| ApiError::Setting { name: "jwt.key", detail };
    if secret.len() < SECRET_BYTES_MIN {
        return Err(refused(format!("a secret for HS256 has at least {SECRET_BYTES_MIN} bytes")));
    }
    let wrong = |error: Error| refused(error.to_string());
    Ok(Keys::Secret {
        decoding: DecodingKey::from_secret(secret).map_err(wrong)?,
        encoding: EncodingKey::from_secret(secret).map_err(wrong)?,
    })
}

/// Whether the database can keep it, and a log line too.
pub(crate) fn is_subject(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().count() <= SUBJECT_CHARACTERS_MAX
        && !text.chars().any(char::is_control)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum is non_exhaustive, and most of it is one answer"
)]
fn refusal(error: &Error) -> Problem {
    Problem::InvalidToken(match error.kind() {
        ErrorKind::ExpiredSignature => return Problem::TokenExpired,
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            "exp, iss, aud and sub must be there, each of its type"
        }
        ErrorKind::InvalidAlgorithm => "the token's algorithm is not the key's",
        ErrorKind::InvalidSignature => "the signature does not fit",
        _ => "the token can't be read",
    })
}

/// The caller, as the token says. A handler that takes it answers 401 to everybody else.
pub(crate) struct Caller {
    pub(crate) subject: String,
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        let value = values.next().ok_or(Problem::MissingToken)?;
        if values.next().is_some() {
            return Err(Problem::InvalidToken("there are two Authorization headers"));
        }
        let token = value.to_str().ok().and_then(bearer).ok_or(Problem::MissingToken)?;
        Ok(Self { subject: api.verifier.subject(token).await? })
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim())
}
