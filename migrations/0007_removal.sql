-- Removal and replacement: who purges a card, what was removed, what proves it (R-E1 to R-E5, R-F1).
alter table cards
    add column overdue_looks integer not null default 0 check (overdue_looks >= 0),
    add column delete_requested_at timestamptz,
    add column purge_until timestamptz,
    add column replaces_id uuid,
    -- a file and its replacement have one owner (R-G3)
    add constraint cards_replaced_is_of_owner
        foreign key (owner_id, replaces_id) references cards (owner_id, id) on delete restrict,
    add constraint cards_no_replacement_of_itself check (replaces_id <> id),
    add constraint cards_deletion_has_its_time check (
        (state in ('deleting', 'deleted')) = (delete_requested_at is not null)
    );

-- One open replacement a file (R-F1).
create unique index cards_one_open_replacement on cards (owner_id, replaces_id)
    where replaces_id is not null and state in ('pending', 'queued', 'processing');

comment on column cards.overdue_looks is 'Looks at overdue work or purges in a row: each waits longer than the one before.';
comment on column cards.delete_requested_at is 'When deletion was asked for; delete_after and the removal come later.';
comment on column cards.purge_until is 'Until then one deleter has the card''s purge; others wait.';
comment on column cards.replaces_id is 'The file that this one takes the place of once it is ready.';

alter table card_history drop constraint card_history_event_check;
alter table card_history add constraint card_history_event_check check (event in (
    'ticket_issued', 'ticket_renewed', 'version_refused', 'confirmed', 'leased', 'ready', 'duplicate',
    'rejected', 'expired', 'parked', 'unparked', 'delete_requested', 'purged', 'deleted'
));

-- Written before the store is asked to remove it: the first half of every receipt (R-E5).
create table removals (
    id bigint generated always as identity primary key,
    owner_id uuid not null,
    card_id uuid not null,
    key text not null check (octet_length(key) <= 1024),
    version text not null,
    is_delete_marker boolean not null,
    size_bytes bigint not null check (size_bytes >= 0),
    etag text,
    last_modified timestamptz not null,
    listed_at timestamptz not null,
    state text not null,
    unique (card_id, key, version),
    foreign key (owner_id, card_id) references cards (owner_id, id) on delete cascade
);

comment on table removals is 'Each object version a purge removed, or was about to remove when it died.';
comment on column removals.id is 'Order of recording.';
comment on column removals.owner_id is 'Whose card it is.';
comment on column removals.card_id is 'The card under whose keys it lay.';
comment on column removals.key is 'The object key.';
comment on column removals.version is 'The version id.';
comment on column removals.is_delete_marker is 'Whether it only said that the key was deleted.';
comment on column removals.size_bytes is 'Its size; 0 for a delete marker.';
comment on column removals.etag is 'Its entity tag; a delete marker has none.';
comment on column removals.last_modified is 'When the store took it, by the store''s clock.';
comment on column removals.listed_at is 'The database''s time before the listing that showed it first.';
comment on column removals.state is 'The card''s state that did not keep it.';

-- The second half: the listing that showed nothing any more.
create table receipts (
    card_id uuid primary key,
    owner_id uuid not null,
    requested_at timestamptz not null,
    delete_after timestamptz not null,
    proved_at timestamptz not null,
    versions_removed integer not null check (versions_removed >= 0),
    bytes_removed bigint not null check (bytes_removed >= 0),
    deleted_at timestamptz not null default now(),
    foreign key (owner_id, card_id) references cards (owner_id, id) on delete cascade
);

comment on table receipts is 'One row a deleted file: what proves that its bytes are gone.';
comment on column receipts.card_id is 'The card.';
comment on column receipts.owner_id is 'Whose it was.';
comment on column receipts.requested_at is 'When deletion was asked for.';
comment on column receipts.delete_after is 'The wait that was kept.';
comment on column receipts.proved_at is 'The database''s time before the listing of all its keys that came back empty.';
comment on column receipts.versions_removed is 'Versions and markers in `removals` at that time.';
comment on column receipts.bytes_removed is 'Their bytes.';
comment on column receipts.deleted_at is 'When it was recorded.';

-- A fresh message is written only where none waits (R-H1); messages about no card are not asked for.
create index outbox_by_card on outbox (card_id, queue) where card_id is not null;

grant select on removals, receipts to arkiv_api;
grant select, insert on removals, receipts to arkiv_worker;
