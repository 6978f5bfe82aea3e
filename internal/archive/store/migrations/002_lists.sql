-- Lists are in the order of creation and go on after a job. Those of one place, queue or user read an index of their own.
CREATE INDEX jobs_place ON jobs (kind, namespace, created, uid);
CREATE INDEX jobs_queue ON jobs (queue, created, uid);
CREATE INDEX jobs_user ON jobs (username, created, uid);
