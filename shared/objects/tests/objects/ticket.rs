//! The ticket's shape and signature, without a store (R-A2).

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cards::{Sha256, Timestamp};
use objects::ticket::{Ticket, TicketRequest, TicketSigner};
use objects::{Credentials, SignerSettings};
use serde_json::{Value, json};

const KEY: &str = "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn signer() -> TicketSigner {
    TicketSigner::new(SignerSettings {
        endpoint: "https://s3.example.com/".parse().unwrap(),
        region: "us-east-1".to_owned(),
        bucket: "arkiv".to_owned(),
        credentials: Credentials::new("AKIAIOSFODNN7EXAMPLE", "secret"),
    })
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn request() -> TicketRequest<'static> {
    TicketRequest {
        key: KEY,
        size_bytes: 5_242_880,
        content_type: "image/jpeg",
        sha256: None,
        issued_at: at("2026-11-30T22:05:00.999999Z"),
        ends_at: at("2026-11-30T22:15:00.999999Z"),
        traceparent: None,
    }
}

fn policy(ticket: &Ticket) -> Value {
    let encoded = &ticket.fields.as_ref().unwrap()["policy"];
    serde_json::from_slice(&BASE64.decode(encoded).unwrap()).unwrap()
}

#[test]
fn a_post_ticket_is_the_object_the_clients_know() {
    let ticket = serde_json::to_value(signer().post(&request()).unwrap()).unwrap();
    let fields = ticket["fields"].as_object().unwrap();
    assert_eq!(
        fields.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from([
            "key",
            "Content-Type",
            "success_action_status",
            "policy",
            "x-amz-algorithm",
            "x-amz-credential",
            "x-amz-date",
            "x-amz-signature",
        ])
    );
    assert!(fields.values().all(Value::is_string));
    assert_eq!(fields["success_action_status"], "201");
    assert_eq!(fields["x-amz-date"], "20261130T220500Z");
    assert_eq!(fields["x-amz-credential"], "AKIAIOSFODNN7EXAMPLE/20261130/us-east-1/s3/aws4_request");
    let mut rest = ticket.clone();
    rest.as_object_mut().unwrap().remove("fields");
    assert_eq!(
        rest,
        json!({
            "method": "POST", "url": "https://s3.example.com/arkiv", "key": KEY,
            "expires": 600, "expires_at": "2026-11-30T22:15:00Z", "headers": {},
        })
    );
}

#[test]
fn the_policy_allows_exactly_the_announced_file() {
    let policy = policy(&signer().post(&TicketRequest { traceparent: Some(TRACE), ..request() }).unwrap());
    assert_eq!(policy["expiration"], "2026-11-30T22:15:00.999Z");
    let conditions = policy["conditions"].as_array().unwrap();
    for condition in [
        json!({ "bucket": "arkiv" }),
        json!({ "key": KEY }),
        json!({ "Content-Type": "image/jpeg" }),
        json!(["content-length-range", 5_242_880, 5_242_880]),
        json!({ "success_action_status": "201" }),
        json!({ "x-amz-meta-traceparent": TRACE }),
        json!({ "x-amz-algorithm": "AWS4-HMAC-SHA256" }),
        json!({ "x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20261130/us-east-1/s3/aws4_request" }),
        json!({ "x-amz-date": "20261130T220500Z" }),
    ] {
        assert!(conditions.contains(&condition), "{condition}");
    }
    assert_eq!(conditions.len(), 9, "nothing else is allowed");
}

#[test]
fn fields_and_policy_agree() {
    for traceparent in [None, Some(TRACE)] {
        let ticket = signer().post(&TicketRequest { traceparent, ..request() }).unwrap();
        let policy = policy(&ticket);
        let compared: BTreeSet<(String, String)> = policy["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_object)
            .flatten()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .filter(|(name, _)| name != "bucket")
            .collect();
        let sent: BTreeSet<(String, String)> = ticket
            .fields
            .unwrap()
            .into_iter()
            .filter(|(name, _)| name != "policy" && name != "x-amz-signature")
            .collect();
        assert_eq!(compared, sent);
    }
}

#[test]
fn a_put_ticket_has_no_fields_and_signs_each_header() {
    let sha256 = Sha256([7; 32]);
    let ticket =
        signer().put(&TicketRequest { sha256: Some(sha256), traceparent: Some(TRACE), ..request() }).unwrap();
    let shown = serde_json::to_value(&ticket).unwrap();
    assert!(shown.get("fields").is_none());
    assert_eq!(
        shown["headers"],
        json!({
            "Content-Type": "image/jpeg",
            "If-None-Match": "*",
            "x-amz-checksum-sha256": BASE64.encode([7; 32]),
            "x-amz-meta-traceparent": TRACE,
        })
    );
    let url: url::Url = ticket.url.parse().unwrap();
    assert_eq!(url.path(), format!("/arkiv/{KEY}"));
    let query: std::collections::HashMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(
        query["X-Amz-SignedHeaders"],
        "content-length;content-type;host;if-none-match;x-amz-checksum-sha256;x-amz-meta-traceparent"
    );
    assert_eq!(query["X-Amz-Expires"], "600");
    assert_eq!(query["X-Amz-Date"], "20261130T220500Z");
}

#[test]
fn signing_again_gives_the_same_ticket_and_any_change_another() {
    let signed = |request: TicketRequest<'_>| {
        let signer = signer();
        let post = signer.post(&request).unwrap().fields.unwrap()["x-amz-signature"].clone();
        (post, signer.put(&request).unwrap().url)
    };
    let first = signed(request());
    assert_eq!(first, signed(request()));
    for changed in [
        TicketRequest { key: "incoming/other", ..request() },
        TicketRequest { size_bytes: 5_242_881, ..request() },
        TicketRequest { content_type: "image/png", ..request() },
        TicketRequest { ends_at: at("2026-11-30T22:16:00Z"), ..request() },
        TicketRequest { traceparent: Some(TRACE), ..request() },
    ] {
        let other = signed(changed);
        assert_ne!(first.0, other.0, "{changed:?}");
        assert_ne!(first.1, other.1, "{changed:?}");
    }
}

#[test]
fn a_ticket_that_ends_before_it_begins_is_not_signed() {
    let request = TicketRequest { ends_at: at("2026-11-30T22:05:00.999999Z"), ..request() };
    assert!(signer().post(&request).is_err());
    assert!(signer().put(&request).is_err());
}

#[test]
fn the_secret_never_shows() {
    let shown = format!("{:?}", signer());
    assert!(!shown.contains("\"secret\""), "{shown}");
}
