-- Versions under our prefix that no card has (R-B11): recorded here, looked up again and removed by reconciliation.
create table strays (
    key text not null check (octet_length(key) <= 1024),
    version text not null,
    size_bytes bigint not null check (size_bytes >= 0),
    first_seen_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    sightings integer not null default 1 check (sightings >= 1),
    primary key (key, version)
);

comment on table strays is 'Objects nobody points at, as events told of them.';
comment on column strays.key is 'The decoded object key.';
comment on column strays.version is 'The version id; empty where the event had none.';
comment on column strays.size_bytes is 'The size the event told.';
comment on column strays.first_seen_at is 'When it was first recorded.';
comment on column strays.last_seen_at is 'When it was last recorded.';
comment on column strays.sightings is 'How often it was recorded.';
