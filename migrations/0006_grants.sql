-- What each role may do. The owner of the schema runs migrations and nothing else.
revoke all on schema public from public;
grant usage on schema public to arkiv_api, arkiv_worker;

-- The API issues and renews tickets and confirms on request; it never deletes a row.
grant select, insert on owners to arkiv_api;
grant select, insert, update on cards to arkiv_api;
grant select, insert on card_history to arkiv_api;
grant insert on outbox to arkiv_api;

-- The workers move cards on and empty the outbox; a card's row is never deleted.
grant select on owners to arkiv_worker;
grant select, update on cards to arkiv_worker;
grant select, insert on card_history to arkiv_worker;
grant select, insert, update, delete on outbox to arkiv_worker;
grant select, insert, update, delete on strays to arkiv_worker;

-- Which migrations are in is no secret: readiness compares them with the binary's.
do $$
begin
    if to_regclass('_sqlx_migrations') is not null then
        grant select on _sqlx_migrations to arkiv_api, arkiv_worker;
    end if;
end
$$;
