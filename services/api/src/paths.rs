//! Paths of a file's routes, for `Location` and `links`; and the id in a path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use cards::CardId;
use http::request::Parts;

use crate::error::Problem;
use crate::{Api, ApiSettings};

/// The routes of one file, as a client reaches them: below the public URL's path, where there is one.
pub(crate) struct Paths {
    this: String,
}

impl Paths {
    pub(crate) fn new(settings: &ApiSettings, id: CardId) -> Self {
        Self { this: format!("{}/{id}", files(settings)) }
    }

    pub(crate) fn this(&self) -> String {
        self.this.clone()
    }

    pub(crate) fn confirm(&self) -> String {
        self.below("confirm")
    }

    pub(crate) fn ticket(&self) -> String {
        self.below("ticket")
    }

    pub(crate) fn download(&self) -> String {
        self.below("download")
    }

    pub(crate) fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.this)
    }
}

/// The path of the list.
pub(crate) fn files(settings: &ApiSettings) -> String {
    below_prefix(settings, "/v1/files")
}

/// The path of the page of all codes.
pub(crate) fn problems(settings: &ApiSettings) -> String {
    below_prefix(settings, "/problems")
}

/// The path of a code's page: the `type` of its problems.
pub(crate) fn problem(settings: &ApiSettings, code: &str) -> String {
    below_prefix(settings, &format!("/problems/{code}"))
}

/// A path of ours as a client reaches it.
pub(crate) fn below_prefix(settings: &ApiSettings, path: &str) -> String {
    let prefix = settings.public_url.as_ref().map_or("", |url| url.path().trim_end_matches('/'));
    format!("{prefix}{path}")
}

/// The id in a path. What is no id of ours is nobody's file: the same 404 (R-D3).
pub(crate) struct FileId(pub(crate) CardId);

impl FromRequestParts<Arc<Api>> for FileId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let Path(text) =
            Path::<String>::from_request_parts(parts, api).await.map_err(|_| Problem::NotFound)?;
        text.parse().map(Self).map_err(|_| Problem::NotFound)
    }
}
