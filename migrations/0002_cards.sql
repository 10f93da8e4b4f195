-- One row a file. The CHECKs repeat the state machine of shared/cards/src/state.rs: half states are refused (R-G4).
create table cards (
    id uuid primary key,
    owner_id uuid not null references owners (id) on delete restrict,
    revision bigint not null default 0 check (revision >= 0),
    state text not null check (state in (
        'pending', 'queued', 'processing', 'ready', 'duplicate', 'rejected', 'expired', 'deleting', 'deleted'
    )),

    -- announced with the ticket
    source_key text not null unique,
    filename text not null check (char_length(filename) between 1 and 255),
    size_bytes bigint not null check (size_bytes between 1 and 10485760),
    content_type text not null check (content_type in (
        'image/png', 'image/jpeg', 'image/webp', 'image/gif', 'application/pdf', 'text/plain'
    )),
    announced_sha256 bytea check (octet_length(announced_sha256) = 32),
    keep text not null default 'always' check (keep in ('always', 'attached')),
    idempotency_key text check (char_length(idempotency_key) between 1 and 255),
    idempotency_fingerprint bytea check (octet_length(idempotency_fingerprint) = 32),

    -- the ticket as last issued
    ticket_method text not null check (ticket_method in ('POST', 'PUT')),
    ticket_issued_at timestamptz not null,
    ticket_ends_at timestamptz not null check (ticket_ends_at > ticket_issued_at),
    traceparent text,

    -- confirmation
    looks integer not null default 0 check (looks >= 0),
    refused_versions text[] not null default '{}' check (cardinality(refused_versions) <= 6),
    pinned_version text check (pinned_version not in ('', 'null')),
    confirmed_by text check (confirmed_by in ('event', 'sweep', 'request')),
    problem_code text,
    problem_detail text,

    -- decoding
    attempts integer not null default 0 check (attempts >= 0),
    lease_token uuid,
    lease_until timestamptz,
    accepted_token uuid,
    sha256 bytea check (octet_length(sha256) = 32),
    object_version text check (object_version not in ('', 'null')),
    object_etag text,
    ready_at timestamptz,
    facts jsonb,
    derivatives jsonb not null default '[]' check (jsonb_typeof(derivatives) = 'array'),
    original_id uuid,

    -- removal
    delete_after timestamptz,
    purge_at timestamptz,
    purged_at timestamptz,
    orphan_since timestamptz,

    -- the timer
    next_check_at timestamptz,
    parked_at timestamptz,
    parked_queue text,
    parked_reason text,

    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),

    unique (owner_id, id),
    -- an alias and its original have one owner: the composite key leaks nothing across owners (R-G3)
    foreign key (owner_id, original_id) references cards (owner_id, id) on delete restrict,

    constraint cards_source_key_is_of_this_card check (source_key = 'incoming/' || id::text),
    constraint cards_idempotency_is_whole check ((idempotency_key is null) = (idempotency_fingerprint is null)),
    constraint cards_problem_is_whole check ((problem_code is null) = (problem_detail is null)),
    constraint cards_parked_is_whole check (
        (parked_at is null) = (parked_queue is null) and (parked_at is null) = (parked_reason is null)
    ),
    constraint cards_ready_is_whole check (
        (state = 'ready') = (sha256 is not null and object_version is not null and ready_at is not null)
    ),
    constraint cards_only_ready_has_an_object check (
        (state = 'ready') = (object_version is not null) and (state = 'ready') = (ready_at is not null)
    ),
    constraint cards_ready_names_its_copy check (
        state <> 'ready' or (accepted_token is not null and object_etag is not null and facts is not null)
    ),
    constraint cards_lease_is_of_processing check (
        (state = 'processing') = (lease_token is not null) and (state = 'processing') = (lease_until is not null)
    ),
    constraint cards_pinned_while_worked_on check (
        state not in ('queued', 'processing', 'ready') or (pinned_version is not null and confirmed_by is not null)
    ),
    constraint cards_pending_pins_nothing check (state <> 'pending' or pinned_version is null),
    constraint cards_original_is_of_duplicate check ((state = 'duplicate') = (original_id is not null)),
    constraint cards_no_alias_of_itself check (original_id <> id),
    constraint cards_rejected_says_why check (state <> 'rejected' or problem_code is not null),
    constraint cards_delete_after_is_of_deletion check (
        (state in ('deleting', 'deleted')) = (delete_after is not null)
    ),
    constraint cards_ready_is_not_purged check (state <> 'ready' or purged_at is null),
    -- INV-2: what is not finished has a time at which it is looked at again
    constraint cards_unfinished_has_a_next_look check (
        next_check_at is not null
        or not (
            state in ('pending', 'queued', 'processing', 'deleting')
            or purge_at is not null
            or (state in ('rejected', 'expired', 'duplicate') and purged_at is null)
        )
    )
);

-- An alias names its original only while it is a duplicate; an original may be gone before its alias is looked at.
create index cards_due on cards (next_check_at) where next_check_at is not null;
create index cards_by_owner on cards (owner_id, created_at, id);
create unique index cards_one_ready_per_hash on cards (owner_id, sha256) where state = 'ready';
create unique index cards_idempotency on cards (owner_id, idempotency_key) where idempotency_key is not null;
create index cards_orphans on cards (orphan_since) where orphan_since is not null;
create index cards_aliases on cards (owner_id, original_id) where original_id is not null;

comment on table cards is 'One row a file, from ticket to tombstone.';
comment on column cards.id is 'UUIDv7, made by the API.';
comment on column cards.owner_id is 'Whose file it is.';
comment on column cards.revision is 'Counts state moves and ticket renewals; every write is guarded by it.';
comment on column cards.state is 'See shared/cards/src/state.rs.';
comment on column cards.source_key is 'Where the browser uploads to: incoming/<id>.';
comment on column cards.filename is 'What the owner calls it; never part of a key.';
comment on column cards.size_bytes is 'Announced size in bytes; the upload has exactly this.';
comment on column cards.content_type is 'Announced type; the bytes are of exactly this.';
comment on column cards.announced_sha256 is 'Announced digest, where there was one.';
comment on column cards.keep is 'always: never vanishes unasked; attached: goes a day after its last detach.';
comment on column cards.idempotency_key is 'The Idempotency-Key header of the request that made it.';
comment on column cards.idempotency_fingerprint is 'SHA-256 of that request''s body.';
comment on column cards.ticket_method is 'POST policy or presigned PUT.';
comment on column cards.ticket_issued_at is 'When the ticket was last signed, in whole seconds as the signature has it.';
comment on column cards.ticket_ends_at is 'When the ticket ends.';
comment on column cards.traceparent is 'W3C trace context; rides along as x-amz-meta-traceparent.';
comment on column cards.looks is 'How often the timer has looked at it since the ticket was issued.';
comment on column cards.refused_versions is 'Version ids that did not fit the ticket; a sixth rejects the card (R-B5).';
comment on column cards.pinned_version is 'The accepted version of the source; the only one that is ever read.';
comment on column cards.confirmed_by is 'What found the upload: the bucket''s event, the timer''s listing, or a request.';
comment on column cards.problem_code is 'Stable code of the last problem its owner can read.';
comment on column cards.problem_detail is 'One sentence for the owner.';
comment on column cards.attempts is 'Leases taken; a crash of the worker counts.';
comment on column cards.lease_token is 'The running worker''s token; names what it writes.';
comment on column cards.lease_until is 'Past this another worker may lease it.';
comment on column cards.accepted_token is 'The token of the lease that was accepted; names copy and derivatives.';
comment on column cards.sha256 is 'Digest of all the bytes; stays when the file leaves ready.';
comment on column cards.object_version is 'Version of the permanent copy files/<id>/<accepted_token>.';
comment on column cards.object_etag is 'Entity tag of the permanent copy.';
comment on column cards.ready_at is 'When it became ready.';
comment on column cards.facts is 'What was read from the bytes: type, pixels, frames, pages.';
comment on column cards.derivatives is 'What was made of it: name, type, pixels, bytes, version.';
comment on column cards.original_id is 'The file a duplicate stands for.';
comment on column cards.delete_after is 'Nothing of a deleted card is removed before this.';
comment on column cards.purge_at is 'A purge is owed; only a clean listing begun after this clears it.';
comment on column cards.purged_at is 'When the bytes were recorded as gone; set once.';
comment on column cards.orphan_since is 'Since when a keep=attached file has been attached to nothing.';
comment on column cards.next_check_at is 'When the timer looks at it next; null once finished.';
comment on column cards.parked_at is 'Since when its message lies dead; nothing is re-enqueued until a replay.';
comment on column cards.parked_queue is 'The queue of that message.';
comment on column cards.parked_reason is 'Why it was dead-lettered.';
comment on column cards.created_at is 'When the first ticket was issued.';
comment on column cards.updated_at is 'When the row last changed state or ticket.';
