-- Lists of jobs are in the order of creation, and a page continues after a job. The lists of a kind and namespace, of a
-- queue and of a user each read one index.
CREATE INDEX jobs_place ON jobs (kind, namespace, created, uid);
CREATE INDEX jobs_queue ON jobs (queue, created, uid);
CREATE INDEX jobs_user ON jobs (username, created, uid);
