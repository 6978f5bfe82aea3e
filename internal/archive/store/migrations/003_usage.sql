-- Usage reads many attempts. SQLite reads only this index of them, not the records, of which each has a page. PostgreSQL keeps
-- long texts apart from records, and bounds the size of an entry of an index, which requests may exceed.
DROP INDEX attempts_scheduled;
CREATE INDEX attempts_held ON attempts (scheduled, ended, outcome, job$AND_REQUESTS);
