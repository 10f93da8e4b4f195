-- The database roles and the database itself. Run by a superuser, as often as you like: what exists is left alone.
--
--   arkiv_owner   owns the database and the schema; runs migrations and nothing else. No superuser: what it
--                 may do is what a migration may do. CREATEDB, so that tests can make a database each.
--   arkiv_api     what the HTTP service logs in as: it issues tickets and reads, and deletes nothing.
--   arkiv_worker  what every background role logs in as.
--
-- No password stands here. Each is taken from the environment of the psql that runs this file (ARKIV_OWNER_PASSWORD,
-- ARKIV_API_PASSWORD, ARKIV_WORKER_PASSWORD), so it never shows in a process list; one that is not set leaves the
-- role's password as it is.

\set ON_ERROR_STOP on
set client_min_messages = warning;

do $$
declare
    name text;
begin
    foreach name in array array['arkiv_owner', 'arkiv_api', 'arkiv_worker'] loop
        if not exists (select from pg_roles where rolname = name) then
            execute format('create role %I', name);
        end if;
    end loop;
end
$$;

alter role arkiv_owner  login nosuperuser nobypassrls nocreaterole createdb;
alter role arkiv_api    login nosuperuser nobypassrls nocreaterole nocreatedb;
alter role arkiv_worker login nosuperuser nobypassrls nocreaterole nocreatedb;

\getenv password ARKIV_OWNER_PASSWORD
\if :{?password}
    alter role arkiv_owner password :'password';
    \unset password
\endif
\getenv password ARKIV_API_PASSWORD
\if :{?password}
    alter role arkiv_api password :'password';
    \unset password
\endif
\getenv password ARKIV_WORKER_PASSWORD
\if :{?password}
    alter role arkiv_worker password :'password';
    \unset password
\endif

-- CREATE DATABASE refuses to run inside a block, hence \gexec.
select 'create database arkiv owner arkiv_owner'
where not exists (select from pg_database where datname = 'arkiv')
\gexec
