-- A sum of usage reads many attempts. SQLite reads only this index, which has all columns that it needs, because each
-- record of the table occupies at least one page. In PostgreSQL the index lacks the requests, because they may exceed
-- the largest size of an index entry; PostgreSQL stores long texts apart from the records.
DROP INDEX attempts_scheduled;
CREATE INDEX attempts_held ON attempts (scheduled, ended, outcome, job$AND_REQUESTS);
