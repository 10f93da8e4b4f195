//! `GET /problems`, `GET /problems/{code}`: where a problem's `type` leads (R-D5, RFC 9457 3.1.1). For people: what
//! happened, and what to do next. Made of the table in [`crate::codes`] alone; nothing of a request is ever shown.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use sha2::{Digest, Sha256};

use crate::codes::{Code, Row};
use crate::error::Problem;
use crate::{Api, paths};

/// A page changes with a release only.
const PAGE_LIFE: HeaderValue = HeaderValue::from_static("public, max-age=3600");

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:42rem;margin:0 auto;padding:1.5rem 1rem}\
h1{font-size:1.5rem;line-height:1.25;margin:1rem 0}h2{font-size:1.1rem;margin:1.5rem 0 .25rem}p{margin:.25rem 0}\
code{font:.95em ui-monospace,monospace;overflow-wrap:anywhere}\
ul{list-style:none;padding:0}li{padding:.5rem 0;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}\
li span{display:block}a{color:LinkText}";

/// All codes.
pub(crate) async fn index(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let mut body = "<h1>What can go wrong</h1>\n<p>Every problem this service answers with has one of these codes.</p>\n<ul>\n"
        .to_owned();
    for row in Code::ALL.map(Code::row) {
        let path = paths::problem(&api.settings, row.code);
        line(
            &mut body,
            format_args!(
                "<li><a href=\"{path}\"><code>{}</code></a><span>{}: {}</span></li>",
                row.code,
                row.status.as_u16(),
                escape(row.title)
            ),
        );
    }
    body.push_str("</ul>\n");
    page("What can go wrong", &body)
}

/// One code.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let row = Code::parse(&name).ok_or(Problem::NoRoute)?.row();
    let mut body = format!("<p><a href=\"{}\">All codes</a></p>\n", paths::problems(&api.settings));
    line(&mut body, format_args!("<h1>{}</h1>", escape(row.title)));
    line(&mut body, format_args!("<p><code>{}</code>, status {}</p>", row.code, status(&row)));
    line(&mut body, format_args!("<h2>What happened</h2>\n<p>{}</p>", escape(row.meaning)));
    line(&mut body, format_args!("<h2>What to do next</h2>\n<p>{}</p>", escape(row.next)));
    let again =
        if row.is_retryable { "may go through later" } else { "is not answered otherwise by trying again" };
    line(&mut body, format_args!("<p>The same request {again}.</p>"));
    page(row.title, &body)
}

fn status(row: &Row) -> String {
    let reason = row.status.canonical_reason().unwrap_or_default();
    format!("{} {}", row.status.as_u16(), escape(reason))
}

fn line(body: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(body, "{text}");
}

fn page(title: &str, body: &str) -> Result<Response, Problem> {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} · Arkiv</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title)
    );
    // The style by its digest: nothing else of a page is let in, should anything ever get there.
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        BASE64.encode(Sha256::digest(STYLE))
    );
    let policy = HeaderValue::try_from(policy).map_err(|_| Problem::Internal)?;
    Ok(([(CONTENT_SECURITY_POLICY, policy), (CACHE_CONTROL, PAGE_LIFE)], Html(html)).into_response())
}

/// Text of the table as HTML; what stands in backquotes is code.
fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    let mut is_code = false;
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '`' => {
                html.push_str(if is_code { "</code>" } else { "<code>" });
                is_code = !is_code;
            }
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_can_not_become_markup_and_backquotes_are_code() {
        assert_eq!(escape("Bearer <token> & \"x\""), "Bearer &lt;token&gt; &amp; &quot;x&quot;");
        assert_eq!(escape("run `arkiv setup`."), "run <code>arkiv setup</code>.");
        for row in Code::ALL.map(Code::row) {
            for text in [row.meaning, row.next] {
                assert_eq!(text.matches('`').count() % 2, 0, "{text}");
            }
            assert!(!row.title.contains('`'), "a title goes into <title> too");
        }
    }
}
