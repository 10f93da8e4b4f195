-- What happened to each file, append-only: the timeline, and later the event stream, read from it.
create table card_history (
    id bigint generated always as identity primary key,
    owner_id uuid not null,
    card_id uuid not null,
    revision bigint not null,
    event text not null check (event in (
        'ticket_issued', 'ticket_renewed', 'version_refused', 'confirmed', 'leased', 'ready', 'duplicate',
        'rejected', 'expired', 'parked', 'delete_requested', 'deleted'
    )),
    state text not null,
    detail jsonb not null default '{}',
    at timestamptz not null default now(),
    foreign key (owner_id, card_id) references cards (owner_id, id) on delete cascade
);

create index card_history_by_owner on card_history (owner_id, id);
create index card_history_by_card on card_history (card_id, id);

comment on table card_history is 'Append-only: one row for each thing that happened to a card.';
comment on column card_history.id is 'Rises with insertion, not with commit.';
comment on column card_history.owner_id is 'Whose card it is.';
comment on column card_history.card_id is 'The card.';
comment on column card_history.revision is 'The card''s revision after the event.';
comment on column card_history.event is 'What happened.';
comment on column card_history.state is 'The card''s state after the event.';
comment on column card_history.detail is 'Facts of this event, for people.';
comment on column card_history.at is 'The database''s time of the transaction.';
