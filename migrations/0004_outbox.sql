-- Messages that exist only once their transaction committed (INV-2). A retry is a row that is due later (R-I2).
create table outbox (
    id bigint generated always as identity primary key,
    queue text not null check (queue in ('card.confirm', 'card.decode', 'card.purge')),
    message_id uuid not null,
    card_id uuid,
    attempt integer not null default 1 check (attempt >= 1),
    body bytea not null check (octet_length(body) <= 1048576),
    traceparent text,
    available_at timestamptz not null default now(),
    reason text,
    publish_attempts integer not null default 0,
    last_error text,
    created_at timestamptz not null default now()
) with (
    -- The table stays small and churns: vacuum by count, at once (FACTS 4.2).
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- No id cursor: ids commit out of order and delayed rows have low ids.
create index outbox_due on outbox (available_at, id);

comment on table outbox is 'Messages to publish; a row is deleted in the transaction that saw it confirmed.';
comment on column outbox.id is 'Order among rows due at the same time.';
comment on column outbox.queue is 'The work queue, and the routing key on card.work.';
comment on column outbox.message_id is 'Stays the same when a row is published twice.';
comment on column outbox.card_id is 'The card it is about, where there is one.';
comment on column outbox.attempt is 'Goes into the header: 1 for a first attempt.';
comment on column outbox.body is 'The message, byte for byte.';
comment on column outbox.traceparent is 'W3C trace context, into the header.';
comment on column outbox.available_at is 'Not published before this.';
comment on column outbox.reason is 'Why it is a retry.';
comment on column outbox.publish_attempts is 'How often the broker returned or refused it.';
comment on column outbox.last_error is 'What the broker said the last time.';
comment on column outbox.created_at is 'When the row was written.';
