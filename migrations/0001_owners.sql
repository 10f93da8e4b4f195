-- Who files belong to. The roles are made by infra/postgres/roles.sql, before the first migration.
do $$
begin
    if not exists (select from pg_roles where rolname = 'arkiv_api')
        or not exists (select from pg_roles where rolname = 'arkiv_worker') then
        raise exception 'the roles arkiv_api and arkiv_worker are missing'
            using hint = 'apply infra/postgres/roles.sql as a superuser, then migrate again';
    end if;
end
$$;

create table owners (
    id uuid primary key,
    subject text not null unique check (char_length(subject) between 1 and 255),
    created_at timestamptz not null default now()
);

comment on table owners is 'Whose files these are: one row for each subject that ever presented a token.';
comment on column owners.id is 'UUIDv7.';
comment on column owners.subject is 'The `sub` of the identity token.';
comment on column owners.created_at is 'When the subject was first seen.';
