//! R-G4: the database itself refuses every half state. Each row breaks one CHECK of an otherwise whole card.

use cards::MediaType;
use objects::fake::Fake;
use testkit::{TestDb, fixture};

/// Statements on a card in the named state, and the constraint that must refuse each.
const HALF_STATES: &[(&str, &str, &str)] = &[
    ("pending", "state = 'ready'", "cards_only_ready_has_an_object"),
    ("pending", "sha256 = decode('00', 'hex')", "cards_sha256_check"),
    ("pending", "announced_sha256 = decode('00', 'hex')", "cards_announced_sha256_check"),
    ("pending", "object_version = 'v', ready_at = now()", "cards_only_ready_has_an_object"),
    ("pending", "lease_token = gen_random_uuid()", "cards_lease_is_of_processing"),
    ("pending", "lease_until = now()", "cards_lease_is_of_processing"),
    ("pending", "pinned_version = 'v'", "cards_pending_pins_nothing"),
    ("queued", "pinned_version = 'null'", "cards_pinned_version_check"),
    ("pending", "state = 'queued'", "cards_pinned_while_worked_on"),
    ("pending", "next_check_at = null", "cards_unfinished_has_a_next_look"),
    ("pending", "original_id = id", "cards_no_alias_of_itself"),
    ("pending", "delete_after = now()", "cards_delete_after_is_of_deletion"),
    ("pending", "state = 'deleting'", "cards_delete_after_is_of_deletion"),
    ("pending", "state = 'duplicate'", "cards_original_is_of_duplicate"),
    ("pending", "state = 'rejected'", "cards_rejected_says_why"),
    ("pending", "state = 'lost'", "cards_state_check"),
    ("pending", "size_bytes = 0", "cards_size_bytes_check"),
    ("pending", "size_bytes = 10485761", "cards_size_bytes_check"),
    ("pending", "content_type = 'image/svg+xml'", "cards_content_type_check"),
    ("pending", "source_key = 'incoming/other'", "cards_source_key_is_of_this_card"),
    ("pending", "refused_versions = array['1','2','3','4','5','6','7']", "cards_refused_versions_check"),
    ("pending", "problem_code = 'corrupt'", "cards_problem_is_whole"),
    ("pending", "parked_at = now()", "cards_parked_is_whole"),
    ("queued", "state = 'processing'", "cards_lease_is_of_processing"),
    ("queued", "state = 'processing', lease_token = gen_random_uuid()", "cards_lease_is_of_processing"),
    ("queued", "pinned_version = null", "cards_pinned_while_worked_on"),
    ("queued", "next_check_at = null", "cards_unfinished_has_a_next_look"),
    ("processing", "lease_token = null", "cards_lease_is_of_processing"),
    ("processing", "next_check_at = null", "cards_unfinished_has_a_next_look"),
    ("processing", "state = 'queued'", "cards_lease_is_of_processing"),
    ("ready", "sha256 = null", "cards_ready_is_whole"),
    ("ready", "object_version = null", "cards_only_ready_has_an_object"),
    ("ready", "ready_at = null", "cards_only_ready_has_an_object"),
    ("ready", "accepted_token = null", "cards_ready_names_its_copy"),
    ("ready", "facts = null", "cards_ready_names_its_copy"),
    ("ready", "pinned_version = null", "cards_pinned_while_worked_on"),
    ("ready", "purged_at = now()", "cards_ready_is_not_purged"),
    (
        "ready",
        "state = 'deleting', delete_after = now(), delete_requested_at = now()",
        "cards_only_ready_has_an_object",
    ),
    ("pending", "delete_requested_at = now()", "cards_deletion_has_its_time"),
    ("pending", "state = 'deleting', delete_after = now()", "cards_deletion_has_its_time"),
    ("pending", "replaces_id = id", "cards_no_replacement_of_itself"),
    ("pending", "overdue_looks = -1", "cards_overdue_looks_check"),
    // it owes the purge of its source
    ("ready", "next_check_at = null", "cards_unfinished_has_a_next_look"),
    ("rejected", "next_check_at = null, purge_at = null", "cards_unfinished_has_a_next_look"),
    ("rejected", "problem_code = null, problem_detail = null", "cards_rejected_says_why"),
    ("expired", "next_check_at = null, purge_at = null", "cards_unfinished_has_a_next_look"),
];

#[tokio::test]
async fn every_half_state_is_refused_by_its_check() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let pending = fixture::pending(&api, owner, MediaType::Text, b"pending").await;
    let queued = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"queued").await;
    let processing = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"processing").await;
    let processing = fixture::leased(&db, &processing).await;
    let ready = fixture::ready(&db, &api, &fake, owner, b"ready").await;
    let rejected = fixture::rejected(&db, &api, &fake, owner, b"rejected").await;
    let expired = fixture::expired(&test, &db, &api, owner).await;
    let mut wrong = Vec::new();
    for (state, change, constraint) in HALF_STATES {
        let card = match *state {
            "pending" => &pending,
            "queued" => &queued,
            "processing" => &processing,
            "ready" => &ready,
            "rejected" => &rejected,
            "expired" => &expired,
            other => panic!("no card is {other}"),
        };
        let statement = format!("update cards set {change} where id = '{}'", card.id);
        let error = test.try_sql(&statement).await.expect_err(&statement);
        let error = store::StoreError::from(error);
        // Some changes break two CHECKs at once: PostgreSQL names the first by name.
        if !error.is_constraint(constraint) {
            wrong.push(format!("{state}: {change}: expected {constraint}, got {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    test.finish().await;
}

#[tokio::test]
async fn the_same_change_to_a_whole_state_is_taken() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let ready = fixture::ready(&db, &api, &fake, owner, b"ready").await;
    test.sql(&format!(
        "update cards
         set state = 'deleting', delete_after = now(), delete_requested_at = now(), object_version = null,
             ready_at = null
         where id = '{}'",
        ready.id
    ))
    .await;
    // R-G4: the hash stays when the file leaves ready.
    assert_eq!(
        test.count("select count(*) from cards where state = 'deleting' and sha256 is not null").await,
        1
    );
    test.finish().await;
}

#[tokio::test]
async fn two_cards_without_a_hash_coexist() {
    let test = TestDb::new().await;
    let api = test.api();
    let owner = fixture::owner(&api).await;
    fixture::pending(&api, owner, MediaType::Text, b"one").await;
    fixture::pending(&api, owner, MediaType::Text, b"two").await;
    assert_eq!(test.count("select count(*) from cards where sha256 is null").await, 2);
    test.finish().await;
}

#[tokio::test]
async fn an_owner_with_files_can_not_be_deleted_and_history_goes_with_its_card() {
    let test = TestDb::new().await;
    let api = test.api();
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"one").await;
    assert!(test.try_sql(&format!("delete from owners where id = '{owner}'")).await.is_err(), "RESTRICT");
    test.sql(&format!("delete from cards where id = '{}'", card.id)).await;
    assert_eq!(test.count("select count(*) from card_history").await, 0, "CASCADE");
    test.finish().await;
}

#[tokio::test]
async fn the_roles_may_do_their_work_and_no_more() {
    let test = TestDb::new().await;
    for (role, statement) in [
        ("api", "delete from cards"),
        ("api", "select count(*) from outbox"),
        ("api", "delete from card_history"),
        ("api", "update card_history set event = 'ready'"),
        ("api", "create table mine (id int)"),
        ("worker", "delete from cards"),
        ("worker", "update card_history set event = 'ready'"),
        ("worker", "insert into owners (id, subject) values (gen_random_uuid(), 'x')"),
        ("worker", "drop table cards"),
    ] {
        let role_name = format!("arkiv_{role}");
        let error =
            test.try_sql_as(role, statement).await.expect_err(&format!("{role_name} may {statement}"));
        assert!(
            error.to_string().contains("denied") || error.to_string().contains("must be owner"),
            "{error}"
        );
    }
    // O-PG-02: neither role is a superuser, bypasses row security or owns a table.
    assert_eq!(
        test.count(
            "select count(*)
             from pg_roles r
             left join pg_class c on c.relowner = r.oid
             where r.rolname in ('arkiv_api', 'arkiv_worker')
               and (r.rolsuper or r.rolbypassrls or r.rolcreaterole or r.rolcreatedb or c.oid is not null)"
        )
        .await,
        0
    );
    test.finish().await;
}
