-- Bucket reconciliation (R-H2, R-H3): its runs, what they saw, what they removed, and which database they believe.
create table reconcile_runs (
    id bigint generated always as identity primary key,
    mode text not null check (mode in ('dry_run', 'apply')),
    begun_at timestamptz not null default now(),
    claim uuid not null,
    claimed_until timestamptz not null,
    cursor text check (octet_length(cursor) <= 1024),
    walked_at timestamptz,
    versions bigint not null default 0 check (versions >= 0),
    kept bigint not null default 0 check (kept >= 0),
    owed bigint not null default 0 check (owed >= 0),
    card_strays bigint not null default 0 check (card_strays >= 0),
    unknown bigint not null default 0 check (unknown >= 0),
    missing bigint not null default 0 check (missing >= 0),
    missing_objects jsonb not null default '[]' check (jsonb_typeof(missing_objects) = 'array'),
    purges bigint not null default 0 check (purges >= 0),
    removed bigint not null default 0 check (removed >= 0),
    failed bigint not null default 0 check (failed >= 0),
    spared bigint not null default 0 check (spared >= 0),
    ended_at timestamptz,
    verdict text check (verdict in ('clean', 'removed', 'dry_run', 'too_many_strays', 'database_changed')),
    report jsonb,
    constraint reconcile_runs_end_is_whole check (
        (ended_at is null) = (verdict is null) and (ended_at is null) = (report is null)
    ),
    constraint reconcile_runs_walk_before_they_end check (ended_at is null or walked_at is not null),
    constraint reconcile_runs_dry_remove_nothing check (
        mode = 'apply' or ended_at is null or verdict <> 'removed'
    ),
    constraint reconcile_runs_every_version_is_something check (
        versions = kept + owed + card_strays + unknown
    )
);

-- One at a time: two walks would count each other's sightings.
create unique index reconcile_runs_one_open on reconcile_runs ((true)) where ended_at is null;
create index reconcile_runs_by_end on reconcile_runs (ended_at) where ended_at is not null;

comment on table reconcile_runs is 'One row a walk over the bucket, from its beginning to its report.';
comment on column reconcile_runs.id is 'Order of beginning.';
comment on column reconcile_runs.mode is 'dry_run removes nothing; who continues a run decides anew.';
comment on column reconcile_runs.begun_at is 'The database''s time before the first page.';
comment on column reconcile_runs.claim is 'Who walks; another value stops whoever walked before.';
comment on column reconcile_runs.claimed_until is 'Past this another process continues it from the cursor.';
comment on column reconcile_runs.cursor is 'All keys up to this text are done; always between two keys.';
comment on column reconcile_runs.walked_at is 'When the last page was done; removal begins after it.';
comment on column reconcile_runs.versions is 'Versions and delete markers seen.';
comment on column reconcile_runs.kept is 'Those that their card keeps.';
comment on column reconcile_runs.owed is 'Those that their card does not keep and whose purge is owed anyway.';
comment on column reconcile_runs.card_strays is 'Those that their card does not keep and nobody was asked to remove.';
comment on column reconcile_runs.unknown is 'Those of no card.';
comment on column reconcile_runs.missing is 'References of cards that the store does not have.';
comment on column reconcile_runs.missing_objects is 'The first of them: card, state, key, version.';
comment on column reconcile_runs.purges is 'Purges asked for.';
comment on column reconcile_runs.removed is 'Versions removed.';
comment on column reconcile_runs.failed is 'Versions the store did not remove when asked.';
comment on column reconcile_runs.spared is 'Versions whose card was there when they were looked up again.';
comment on column reconcile_runs.ended_at is 'When its report was written.';
comment on column reconcile_runs.verdict is 'What it came to.';
comment on column reconcile_runs.report is 'What arkiv reconcile --json printed.';

-- What a walk saw, beside what events told.
alter table strays
    add column card_id uuid,
    add column seen_in bigint,
    add column is_delete_marker boolean not null default false,
    add column last_modified timestamptz;

create index strays_by_run on strays (seen_in, key, version);

comment on table strays is 'Objects nobody points at, as events told of them and as reconciliation saw them.';
comment on column strays.card_id is 'The card that does not keep it; null where there is no card.';
comment on column strays.seen_in is 'The last run that saw it; null while only events told of it.';
comment on column strays.is_delete_marker is 'Whether it only says that the key was deleted.';
comment on column strays.last_modified is 'When the store took it; null while only events told of it.';
comment on column strays.sightings is 'Events that told of it, and runs that saw it.';

-- Written before the store is asked: what reconciliation removed must be on record even if it dies in between.
create table stray_removals (
    key text not null check (octet_length(key) <= 1024),
    version text not null check (version <> ''),
    is_delete_marker boolean not null,
    size_bytes bigint not null check (size_bytes >= 0),
    last_modified timestamptz,
    first_seen_at timestamptz not null,
    sightings integer not null check (sightings >= 2),
    run_id bigint not null references reconcile_runs (id) on delete restrict,
    recorded_at timestamptz not null default now(),
    removed_at timestamptz,
    primary key (key, version),
    -- the grace of R-H2, a last time
    constraint stray_removals_keep_the_grace check (first_seen_at <= recorded_at - interval '24 hours')
);

comment on table stray_removals is 'Each object version of no card that reconciliation removed, or was about to.';
comment on column stray_removals.key is 'The object key.';
comment on column stray_removals.version is 'The version id.';
comment on column stray_removals.is_delete_marker is 'Whether it only said that the key was deleted.';
comment on column stray_removals.size_bytes is 'Its size; 0 for a delete marker.';
comment on column stray_removals.last_modified is 'When the store had taken it.';
comment on column stray_removals.first_seen_at is 'When it was first known to be of no card.';
comment on column stray_removals.sightings is 'How often it had been seen.';
comment on column stray_removals.run_id is 'The run that asked last.';
comment on column stray_removals.recorded_at is 'When this was written, before the store was asked.';
comment on column stray_removals.removed_at is 'When the store had said that it is gone; null: it refused, or nobody heard.';

-- Which database the bucket is compared with. A restored one knows less than the bucket: nothing may be removed then.
create table database_identity (
    is_the_only_row boolean primary key default true check (is_the_only_row),
    system_identifier bigint not null,
    timeline_id integer not null,
    database_oid bigint not null,
    cards_oid bigint not null,
    recorded_at timestamptz not null default now(),
    accepted_at timestamptz
);

comment on table database_identity is 'One row: the database as the first reconciliation, or an operator, knew it.';
comment on column database_identity.is_the_only_row is 'Always true.';
comment on column database_identity.system_identifier is 'The cluster''s; another after initdb, so after a dump was restored elsewhere.';
comment on column database_identity.timeline_id is 'Raised by every point-in-time recovery and promotion.';
comment on column database_identity.database_oid is 'Another after the database was made anew.';
comment on column database_identity.cards_oid is 'Another after the table was made anew, as a restored dump does.';
comment on column database_identity.recorded_at is 'When it was recorded or accepted.';
comment on column database_identity.accepted_at is 'When an operator accepted a restore; for a day nothing of known cards goes.';

create index strays_of_cards on strays (seen_in, card_id) where card_id is not null;

grant select, insert, update on reconcile_runs, database_identity to arkiv_worker;
grant select, insert, update on stray_removals to arkiv_worker;
