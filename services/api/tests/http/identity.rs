//! Tokens, and attacks on them (RFC 8725).

use api::JwtKey;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::{Request, StatusCode};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::world::{ANNA, Answer, SECRET, World, claims, now, photo, token};

async fn with_header(world: &World, authorization: &str) -> Answer {
    let request = Request::builder().uri("/v1/files").header("authorization", authorization);
    world.send(request.body(Body::empty()).unwrap()).await
}

fn signed(algorithm: Algorithm, kid: Option<&str>, claims: &Value, key: &EncodingKey) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn with_secret(claims: &Value) -> String {
    signed(Algorithm::HS256, None, claims, &EncodingKey::from_secret(SECRET).unwrap())
}

#[tokio::test]
async fn only_a_good_token_gets_in() {
    let world = World::new().await;
    let good = claims(ANNA);
    let changed = |field: &str, value: Value| {
        let mut claims = good.clone();
        claims[field] = value;
        with_secret(&claims)
    };
    let without = |field: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(field);
        with_secret(&claims)
    };
    let raw = |header: &Value, signature: &str| {
        format!("{}.{}.{signature}", BASE64.encode(header.to_string()), BASE64.encode(good.to_string()))
    };
    let other_key = EncodingKey::from_secret(&[7; 40]).unwrap();
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let signature = token(ANNA).rsplit('.').next().unwrap().to_owned();
    let seconds = now().timestamp();
    for (what, token, code) in [
        ("alg none", raw(&json!({ "alg": "none" }), ""), "invalid_token"),
        ("alg None", raw(&json!({ "alg": "None" }), ""), "invalid_token"),
        ("alg none with a good signature", raw(&json!({ "alg": "none" }), &signature), "invalid_token"),
        ("no alg", raw(&json!({ "typ": "JWT" }), &signature), "invalid_token"),
        ("no signature", raw(&json!({ "alg": "HS256" }), ""), "invalid_token"),
        ("another key", signed(Algorithm::HS256, None, &good, &other_key), "invalid_token"),
        ("HS512 with our key", signed(Algorithm::HS512, None, &good, &key), "invalid_token"),
        ("no exp", without("exp"), "invalid_token"),
        ("no iss", without("iss"), "invalid_token"),
        ("no aud", without("aud"), "invalid_token"),
        ("no sub", without("sub"), "invalid_token"),
        ("expired", changed("exp", json!(seconds - 60)), "token_expired"),
        ("exp as a text", changed("exp", json!((seconds + 600).to_string())), "invalid_token"),
        ("exp as a list", changed("exp", json!([seconds + 600])), "invalid_token"),
        ("exp null", changed("exp", Value::Null), "invalid_token"),
        ("exp below zero", changed("exp", json!(-1)), "invalid_token"),
        ("not yet", changed("nbf", json!(seconds + 120)), "invalid_token"),
        ("nbf as a text", changed("nbf", json!("0")), "invalid_token"),
        ("another issuer", changed("iss", json!("others")), "invalid_token"),
        ("two issuers", changed("iss", json!(["tests", "others"])), "invalid_token"),
        ("another audience", changed("aud", json!("others")), "invalid_token"),
        ("no audience in a list", changed("aud", json!([])), "invalid_token"),
        ("sub a number", changed("sub", json!(7)), "invalid_token"),
        ("sub a list", changed("sub", json!([ANNA])), "invalid_token"),
        ("sub empty", changed("sub", json!("")), "invalid_token"),
        ("sub with a NUL", changed("sub", json!("an\u{0}na")), "invalid_token"),
        ("sub too long", changed("sub", json!("a".repeat(256))), "invalid_token"),
        ("a list", with_secret(&json!(["tests", "arkiv", ANNA, seconds + 600])), "invalid_token"),
        ("a text", with_secret(&json!("anna")), "invalid_token"),
        ("two parts", token(ANNA).rsplit_once('.').unwrap().0.to_owned(), "invalid_token"),
        ("four parts", format!("{}.x", token(ANNA)), "invalid_token"),
        ("no token at all", "x".to_owned(), "invalid_token"),
        ("long", changed("x", json!("x".repeat(9000))), "invalid_token"),
    ] {
        let answer = with_header(&world, &format!("Bearer {token}")).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{what}: {answer:?}");
        answer.problem(401, code);
        assert!(
            answer.header("www-authenticate").starts_with("Bearer realm=\"arkiv\", error=\"invalid_token\"")
        );
        assert!(!answer.body.contains(&token) || token.len() < 2, "{what}: {answer:?}");
    }
    assert_eq!(world.test.count("select count(*) from owners").await, 0);
    for token in [
        token(ANNA),
        changed("exp", json!(seconds - 20)),
        changed("nbf", json!(seconds + 20)),
        changed("aud", json!(["others", "arkiv"])),
        changed("sub", json!("ы".repeat(255))),
    ] {
        assert_eq!(with_header(&world, &format!("bearer {token}")).await.status, StatusCode::OK);
    }
    assert_eq!(world.test.count("select count(*) from owners").await, 2);
    world.test.finish().await;
}

#[tokio::test]
async fn without_a_token_the_challenge_names_no_error() {
    let world = World::new().await;
    for authorization in ["Basic YTpi", "Bearer", "Token x"] {
        let answer = with_header(&world, authorization).await;
        answer.problem(401, "missing_token");
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"arkiv\"");
    }
    for (method, path) in [
        ("GET", "/v1/files"),
        ("POST", "/v1/files"),
        ("GET", "/v1/files/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01"),
        ("POST", "/v1/files/x/ticket"),
        ("POST", "/v1/files/x/confirm"),
        ("GET", "/v1/files/x/download"),
        ("GET", "/v1/files/x/thumb"),
        ("GET", "/v1/files/x/preview"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        world.send(request).await.problem(401, "missing_token");
    }
    let twice = Request::builder()
        .uri("/v1/files")
        .header("authorization", format!("Bearer {}", token(ANNA)))
        .header("authorization", format!("Bearer {}", token(ANNA)));
    world.send(twice.body(Body::empty()).unwrap()).await.problem(401, "invalid_token");
    world.test.finish().await;
}

fn ed25519() -> EncodingKey {
    EncodingKey::from_ed_der(Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap().as_ref())
}

fn p256() -> EncodingKey {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    EncodingKey::from_ec_der(pkcs8.as_ref())
}

fn jwk(key: &EncodingKey, algorithm: Algorithm, kid: &str) -> Value {
    let mut jwk = serde_json::to_value(Jwk::from_encoding_key(key, algorithm).unwrap()).unwrap();
    jwk["kid"] = kid.into();
    jwk
}

#[tokio::test]
async fn a_key_set_checks_by_kid_and_each_key_has_one_algorithm() {
    let file = std::env::temp_dir().join(format!("arkiv-jwks-{}.json", cards::Ids.message()));
    let (ed, ec, encrypting) = (ed25519(), p256(), ed25519());
    let mut other_use = jwk(&encrypting, Algorithm::EdDSA, "enc");
    other_use["use"] = "enc".into();
    let set = json!({ "keys": [
        jwk(&ed, Algorithm::EdDSA, "ed"),
        jwk(&ec, Algorithm::ES256, "ec"),
        other_use,
        { "kty": "oct", "kid": "oct", "k": BASE64.encode(SECRET) },
        { "kty": "new", "kid": "new" },
    ] });
    std::fs::write(&file, set.to_string()).unwrap();
    let world = World::with(|settings| settings.jwt.key = JwtKey::JwksFile(file.clone())).await;
    let good = claims(ANNA);
    for token in
        [signed(Algorithm::EdDSA, Some("ed"), &good, &ed), signed(Algorithm::ES256, Some("ec"), &good, &ec)]
    {
        assert_eq!(with_header(&world, &format!("Bearer {token}")).await.status, StatusCode::OK);
    }
    // The classic mix-up: the public key's text as an HMAC secret.
    let public = |field: &str, key: usize| {
        let text = set["keys"][key][field].as_str().unwrap();
        EncodingKey::from_secret(&BASE64.decode(text).unwrap()).unwrap()
    };
    let secret = EncodingKey::from_secret(SECRET).unwrap();
    for (what, token) in [
        ("HS256 with a public key", signed(Algorithm::HS256, Some("ed"), &good, &public("x", 0))),
        ("HS256 with a public key", signed(Algorithm::HS256, Some("ec"), &good, &public("x", 1))),
        ("a symmetric key of the set", signed(Algorithm::HS256, Some("oct"), &good, &secret)),
        ("a key for encryption", signed(Algorithm::EdDSA, Some("enc"), &good, &encrypting)),
        ("another key's kid", signed(Algorithm::EdDSA, Some("ec"), &good, &ed)),
        ("a kid nobody has", signed(Algorithm::EdDSA, Some("../ed"), &good, &ed)),
        ("no kid", signed(Algorithm::EdDSA, None, &good, &ed)),
        ("a key we do not know", signed(Algorithm::EdDSA, Some("ed"), &good, &ed25519())),
    ] {
        let answer = with_header(&world, &format!("Bearer {token}")).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{what}: {answer:?}");
    }
    std::fs::remove_file(&file).unwrap();
    world.test.finish().await;
}

#[tokio::test]
async fn without_any_key_nobody_is_refused_for_good() {
    let world =
        World::with(|settings| settings.jwt.key = JwtKey::JwksFile("/nowhere/jwks.json".into())).await;
    let token = signed(Algorithm::EdDSA, Some("ed"), &claims(ANNA), &ed25519());
    let problem = with_header(&world, &format!("Bearer {token}")).await.problem(503, "keys_unavailable");
    assert_eq!(problem["retryable"], true);
    world.test.finish().await;
}

#[tokio::test]
async fn the_development_issuer_is_there_in_development_on_loopback_and_nowhere_else() {
    let ask = |body: Value| {
        let request = Request::builder().method("POST").uri("/dev/token").header("host", "127.0.0.1:8080");
        request.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
    };
    let world = World::with(|settings| settings.development = true).await;
    let answer = world.send(ask(json!({ "subject": "dora" }))).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let body = answer.json();
    assert!(body["expires_at"].as_str().unwrap().parse::<cards::Timestamp>().unwrap() > now());
    let token = body["token"].as_str().unwrap();
    assert_eq!(with_header(&world, &format!("Bearer {token}")).await.status, StatusCode::OK);
    assert_eq!(world.test.texts("select subject from owners").await, ["dora"]);
    for wrong in [json!({}), json!({ "subject": "" }), json!({ "subject": 1 }), json!([])] {
        let problem = world.send(ask(wrong)).await.problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "#/subject");
    }
    let mut form = ask(json!({ "subject": "dora" }));
    form.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    world.send(form).await.problem(415, "unsupported_media_type");
    world.test.finish().await;

    let production = World::new().await;
    production.send(ask(json!({ "subject": "dora" }))).await.problem(404, "route_not_found");
    production.test.finish().await;
    let public = World::with(|settings| {
        settings.development = true;
        settings.listen = "0.0.0.0:80".parse().unwrap();
    })
    .await;
    public.send(ask(json!({ "subject": "dora" }))).await.problem(404, "route_not_found");
    public.test.finish().await;
}

/// A page of another site whose name was made to lead to 127.0.0.1 is of our origin to the browser; its Host tells.
#[tokio::test]
async fn the_development_issuer_answers_only_where_the_host_is_this_machine() {
    let world = World::with(|settings| settings.development = true).await;
    let ask = async |hosts: &[&str]| {
        let mut request =
            Request::builder().method("POST").uri("/dev/token").header("content-type", "application/json");
        for host in hosts {
            request = request.header("host", *host);
        }
        world.send(request.body(Body::from(r#"{"subject":"dora"}"#)).unwrap()).await
    };
    for host in
        ["127.0.0.1", "127.8.9.1:80", "localhost", "LocalHost:8080", "localhost.", "[::1]", "[::1]:8080"]
    {
        assert_eq!(ask(&[host]).await.status, StatusCode::OK, "{host}");
    }
    for hosts in [
        &["evil.example:8080"][..],
        &["localhost.evil.example"],
        &["127.0.0.1.evil.example"],
        &["127.0.0.1@evil.example"],
        &["10.0.0.7"],
        &["0.0.0.0"],
        &["[::]"],
        &[""],
        &[":8080"],
        &["localhost", "evil.example"],
        &[],
    ] {
        ask(hosts).await.problem(403, "foreign_host");
    }
    world.test.finish().await;
}

#[tokio::test]
async fn the_same_subject_is_the_same_owner_from_the_first_request_on() {
    let world = World::new().await;
    let answers = futures::future::join_all((0..5).map(|_| world.get(ANNA, "/v1/files"))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK), "{answers:?}");
    world.ask(ANNA, &photo()).await;
    assert_eq!(world.test.count("select count(*) from owners").await, 1);
    world.test.finish().await;
}
