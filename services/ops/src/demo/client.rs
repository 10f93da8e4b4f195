//! What a browser does: asks the API for a ticket, sends the bytes to the store, asks how the file is.
//!
//! In: a [`Sample`](super::samples::Sample). Out: what the API said, or an error in words for the person at the keyboard.
//! Nothing here knows more than a client may know: no keys, no credentials, no confirm call.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use cards::{CardId, StateName, TicketMethod};
use http_body::{Body, Frame, SizeHint};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::samples::Sample;

/// For one request to the API. Uploads have the demo's own bound.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How much of the bytes goes to the socket at a time: a step of the progress bar.
const CHUNK_BYTES: usize = 64 * 1024;
/// How often a ticket is asked for when the API says "too many" (R-A7).
const TICKET_TRIES_MAX: u32 = 5;
/// The longest it waits then, whatever the API proposes, in seconds.
const RETRY_AFTER_MAX: u64 = 10;
/// A thumbnail of 256 px has some 20 kB.
const THUMB_BYTES_MAX: usize = 1 << 20;

/// The API, signed in as one owner.
#[derive(Clone, Debug)]
pub(super) struct Api {
    url: String,
    http: reqwest::Client,
}

/// What `POST /v1/files` answered.
#[derive(Debug, Deserialize)]
pub(super) struct Issued {
    pub(super) id: CardId,
    pub(super) upload: Upload,
}

/// The ticket (ECOSYSTEM 1.2): what is not needed for sending is not read.
#[derive(Debug, Deserialize)]
pub(crate) struct Upload {
    pub(crate) method: TicketMethod,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) fields: Option<BTreeMap<String, String>>,
}

/// What `GET /v1/files/{id}` answered.
#[derive(Debug, Deserialize)]
pub(super) struct FileView {
    pub(super) state: StateName,
    #[serde(default)]
    pub(super) problem: Option<ProblemView>,
    #[serde(default)]
    pub(super) timeline: Vec<Moment>,
}

/// Why a file was refused.
#[derive(Debug, Deserialize)]
pub(super) struct ProblemView {
    pub(super) code: String,
}

/// One line of the timeline.
#[derive(Debug, Deserialize)]
pub(super) struct Moment {
    pub(super) state: StateName,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

impl Api {
    /// Signs in at the development issuer as a person nobody has been before.
    pub(super) async fn sign_in(url: &str, subject: &str) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let anonymous = client(HeaderMap::new())?;
        let request = anonymous.post(format!("{url}/dev/token")).json(&json!({ "subject": subject }));
        let answer = request
            .timeout(REQUEST_WITHIN)
            .send()
            .await
            .with_context(|| format!("nothing answers at {url}; start it with: ./dev up"))?;
        if answer.status() == StatusCode::NOT_FOUND {
            bail!(
                "the API at {url} gives out no development tokens: it must run with ARKIV_MODE=development"
            );
        }
        let token: Token = read(answer, "asking for a token").await?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.token))
            .context("the token is not one that fits into a header")?;
        bearer.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
        Ok(Self { url, http: client(headers)? })
    }

    /// Asks for a ticket. Where PUT tickets are refused (R-A2) it takes a POST one.
    pub(super) async fn ticket(&self, sample: &Sample) -> anyhow::Result<Issued> {
        let first = self.ask(sample, sample.method).await?;
        let answer = match sample.method {
            TicketMethod::Put if first.status().is_client_error() => {
                self.ask(sample, TicketMethod::Post).await?
            }
            TicketMethod::Put | TicketMethod::Post => first,
        };
        read(answer, "asking for a ticket").await
    }

    async fn ask(&self, sample: &Sample, method: TicketMethod) -> anyhow::Result<Response> {
        let wish = json!({
            "filename": sample.name,
            "size": sample.bytes.len(),
            "content_type": sample.media_type.as_str(),
            "method": method,
        });
        let mut tries = 1;
        loop {
            let answer = self.send(self.request(Method::POST, "/v1/files").json(&wish)).await?;
            if answer.status() != StatusCode::TOO_MANY_REQUESTS || tries == TICKET_TRIES_MAX {
                return Ok(answer);
            }
            tries += 1;
            let proposed = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = proposed.and_then(|text| text.parse().ok()).unwrap_or(1);
            tokio::time::sleep(Duration::from_secs(RETRY_AFTER_MAX.min(seconds))).await;
        }
    }

    /// Asks how a file is.
    pub(super) async fn file(&self, id: CardId) -> anyhow::Result<FileView> {
        let answer = self.send(self.request(Method::GET, &format!("/v1/files/{id}"))).await?;
        read(answer, "asking for the file").await
    }

    /// Fetches the thumbnail through its link, and says how large it is once decoded.
    pub(super) async fn thumb_px(&self, id: CardId) -> anyhow::Result<(u32, u32)> {
        // reqwest follows to the store and leaves the token behind, as a browser does.
        let answer = self.send(self.request(Method::GET, &format!("/v1/files/{id}/thumb"))).await?;
        let answer = refused(answer, "fetching the thumbnail").await?;
        let bytes = answer.bytes().await.context("the thumbnail broke off")?;
        if bytes.len() > THUMB_BYTES_MAX {
            bail!("the thumbnail has {} bytes", bytes.len());
        }
        decoded_px(&bytes)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        request
            .timeout(REQUEST_WITHIN)
            .send()
            .await
            .map_err(reqwest::Error::without_url)
            .with_context(|| format!("{} did not answer", self.url))
    }
}

/// Sends the bytes to the store. `sent` counts them.
pub(crate) async fn upload(
    ticket: Upload,
    sample: &Sample,
    sent: Arc<AtomicU64>,
    within: Duration,
) -> anyhow::Result<()> {
    let length = sample.bytes.len() as u64;
    let body = reqwest::Body::wrap(Counted { left: sample.bytes.clone(), sent });
    let http = client(HeaderMap::new())?;
    let request = match ticket.method {
        TicketMethod::Post => {
            let mut form = Form::new();
            // All fields first: the store decides by what it has read when the file begins.
            for (name, value) in ticket.fields.unwrap_or_default() {
                form = form.text(name, value);
            }
            let file = Part::stream_with_length(body, length)
                .file_name(sample.name)
                .mime_str(sample.media_type.as_str())?;
            http.post(&ticket.url).multipart(form.part("file", file))
        }
        TicketMethod::Put => http.put(&ticket.url).body(body),
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &ticket.headers {
        let name: HeaderName = name.parse().with_context(|| format!("the ticket's header `{name}`"))?;
        headers.insert(name, value.parse().context("a value of the ticket's headers")?);
    }
    let answer = request
        .headers(headers)
        .timeout(within)
        .send()
        .await
        // The URL is the ticket itself.
        .map_err(reqwest::Error::without_url)
        .context("the store did not take the upload")?;
    refused(answer, "uploading").await.map(drop)
}

/// The sides of a WebP or JPEG, after decoding all of it.
fn decoded_px(bytes: &[u8]) -> anyhow::Result<(u32, u32)> {
    if bytes.starts_with(b"RIFF") {
        let image = webp::Decoder::new(bytes).decode().context("the thumbnail is a damaged WebP")?;
        Ok((image.width(), image.height()))
    } else {
        let image = turbojpeg::decompress(bytes, turbojpeg::PixelFormat::RGB)
            .context("the thumbnail is neither WebP nor a sound JPEG")?;
        Ok((u32::try_from(image.width)?, u32::try_from(image.height)?))
    }
}

fn client(headers: HeaderMap) -> anyhow::Result<reqwest::Client> {
    Ok(reqwest::Client::builder().default_headers(headers).connect_timeout(CONNECT_WITHIN).build()?)
}

async fn read<T: for<'de> Deserialize<'de>>(answer: Response, what: &str) -> anyhow::Result<T> {
    let answer = refused(answer, what).await?;
    let text = answer.text().await.with_context(|| format!("{what}: the answer broke off"))?;
    serde_json::from_str(&text).with_context(|| format!("{what}: the answer is not as documented: {text}"))
}

/// Turns an answer that is no success into an error with the server's own words: problem+json or S3's XML.
async fn refused(answer: Response, what: &str) -> anyhow::Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let is_xml = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.to_str().unwrap_or_default().contains("xml"));
    let text = answer.text().await.unwrap_or_default();
    let words = if is_xml { of_xml(&text) } else { of_problem(&text) };
    bail!("{what}: {status}{}", words.map(|words| format!(", {words}")).unwrap_or_default())
}

fn of_problem(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
        #[serde(default)]
        detail: Option<String>,
    }
    let Problem { code, detail } = serde_json::from_str(text).ok()?;
    Some(detail.map_or_else(|| code.clone(), |detail| format!("{code}: {detail}")))
}

fn of_xml(text: &str) -> Option<String> {
    let of = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let code = of("Code")?;
    Some(of("Message").map_or_else(|| code.to_owned(), |message| format!("{code}: {message}")))
}

/// A body that says how much of it has been taken.
struct Counted {
    left: Bytes,
    sent: Arc<AtomicU64>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let next = self.left.len().min(CHUNK_BYTES);
        let chunk = self.left.split_to(next);
        self.sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_words_are_told() {
        let problem = r#"{"type":"x","title":"y","status":422,"code":"too_large","detail":"at most 10 MiB"}"#;
        assert_eq!(of_problem(problem).as_deref(), Some("too_large: at most 10 MiB"));
        assert_eq!(of_problem("<html>"), None);
        let xml = "<?xml?><Error><Code>AccessDenied</Code><RequestId>1</RequestId></Error>";
        assert_eq!(of_xml(xml).as_deref(), Some("AccessDenied"));
        let xml = "<Error><Code>EntityTooLarge</Code><Message>no</Message></Error>";
        assert_eq!(of_xml(xml).as_deref(), Some("EntityTooLarge: no"));
    }

    #[test]
    fn a_ticket_is_read_as_documented_whatever_else_it_has() {
        let post = r#"{"id":"0190a0b0-0000-7000-8000-000000000001","state":"pending","max_bytes":5,"upload":
            {"method":"POST","url":"http://s/b","key":"incoming/x","expires":600,"headers":{},"fields":{"key":"k"}},
            "links":{}}"#;
        let issued: Issued = serde_json::from_str(post).unwrap();
        assert_eq!(issued.upload.fields.unwrap()["key"], "k");
        let put = r#"{"id":"0190a0b0-0000-7000-8000-000000000001","upload":
            {"method":"PUT","url":"http://s/b","headers":{"Content-Type":"image/jpeg"}}}"#;
        let issued: Issued = serde_json::from_str(put).unwrap();
        assert_eq!((issued.upload.method, issued.upload.fields), (TicketMethod::Put, None));
    }

    #[test]
    fn a_thumbnail_that_does_not_decode_is_none() {
        let jpeg = super::super::picture::jpeg(64, 48, 80, 1).unwrap();
        assert_eq!(decoded_px(&jpeg).unwrap(), (64, 48));
        let webp = super::super::picture::webp(64, 48).unwrap();
        assert_eq!(decoded_px(&webp).unwrap(), (64, 48));
        assert!(decoded_px(&webp[..webp.len() / 2]).is_err());
        assert!(decoded_px(b"hello").is_err());
    }

    #[tokio::test]
    async fn an_api_that_is_away_names_the_cure() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Api::sign_in(&format!("http://{free}"), "demo-x").await.unwrap_err();
        assert!(format!("{error:#}").contains("./dev up"), "{error:#}");
    }
}
