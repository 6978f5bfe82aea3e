-- The row has the UID of the cluster to which the archive belongs. There is none until a cluster claims the archive.
CREATE TABLE cluster (number INTEGER PRIMARY KEY CHECK (number = 1), uid TEXT NOT NULL);
