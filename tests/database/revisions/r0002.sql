BEGIN TRANSACTION;
CREATE TABLE af_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT af_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "af_alembic_version" VALUES('r0002');
CREATE TABLE af_board (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	device TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	beat FLOAT, 
	note TEXT NOT NULL, 
	measured INTEGER NOT NULL, 
	owner_host TEXT, 
	owner_pid INTEGER, 
	owner_boot_id TEXT, 
	owner_started FLOAT, 
	CONSTRAINT pk_af_board PRIMARY KEY (id), 
	CONSTRAINT fk_af_board_job_id FOREIGN KEY(job_id) REFERENCES af_job (id), 
	CONSTRAINT ck_af_board_state CHECK (state IN ('working', 'lost', 'left'))
);
CREATE TABLE af_candidate (
	id INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	schedule_id INTEGER NOT NULL, 
	build_s FLOAT, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	device_id INTEGER NOT NULL, 
	target_id INTEGER NOT NULL, 
	threads INTEGER NOT NULL, 
	versions_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	failure TEXT, 
	median_us FLOAT, 
	ci_lo_us FLOAT, 
	ci_hi_us FLOAT, 
	trusted BOOLEAN, 
	max_rel_error FLOAT, 
	owner_host TEXT, 
	owner_pid INTEGER, 
	owner_boot_id TEXT, 
	owner_started FLOAT, 
	CONSTRAINT pk_af_candidate PRIMARY KEY (id), 
	CONSTRAINT fk_af_candidate_workload_id FOREIGN KEY(workload_id) REFERENCES af_workload (id), 
	CONSTRAINT fk_af_candidate_schedule_id FOREIGN KEY(schedule_id) REFERENCES af_schedule (id), 
	CONSTRAINT fk_af_candidate_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_candidate_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_candidate_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id), 
	CONSTRAINT ck_af_candidate_time_or_failure CHECK ((state = 'ok' AND failure IS NULL AND median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL) OR (state IN ('build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL) OR (state IN ('queued', 'building', 'running') AND failure IS NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL)), 
	CONSTRAINT ck_af_candidate_threads CHECK (threads > 0), 
	CONSTRAINT uq_af_candidate_identity UNIQUE (workload_id, schedule_id, device_id, target_id, threads, versions_id)
);
INSERT INTO "af_candidate" VALUES(1,1,1,1.0,'2026-11-21 17:09:12.530724','2026-11-21 17:09:12.645009',1,1,1,1,'ok',NULL,7.1852049999999991316e+01,58.7921,85.4157,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(2,1,2,1.0,'2026-11-21 17:09:12.552031','2026-11-21 17:09:12.805719',1,1,1,1,'ok',NULL,1.20875300000000009961e+02,93.9996,148.798,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(3,2,1,NULL,'2026-11-21 17:09:12.601000','2026-11-21 17:09:12.615094',1,1,1,1,'timeout','over 30 s',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(4,2,2,1.0,'2026-11-21 17:09:12.643385','2026-11-21 17:09:12.643385',1,1,1,1,'ok',NULL,1.02762941436239827906e+02,1.01735312021877433608e+02,1.03790570850602222204e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(5,3,2,1.0,'2026-11-21 17:09:12.804050','2026-11-21 17:09:12.804050',1,1,1,1,'ok',NULL,1.4162698355052941679e+02,1.40210713715024127166e+02,1.43043253386034706405e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(6,3,3,1.0,'2026-11-21 17:09:12.805018','2026-11-21 17:09:12.805018',1,1,1,1,'ok',NULL,1.12935290480064907112e+02,1.11805937575264252364e+02,1.14064643384865561871e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(7,2,4,1.0,'2026-11-21 17:09:12.813460','2026-11-21 17:09:12.813460',1,1,1,1,'ok',NULL,8.0336851093291755891e+01,7.95334825823588431603e+01,8.11402196042246686129e+01,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(8,3,5,NULL,'2026-11-21 17:09:12.823022','2026-11-21 17:09:12.823022',1,1,1,1,'building',NULL,NULL,NULL,NULL,NULL,NULL,'vm',20451,'afe87005-1032-462b-a6d6-4afb7cab2ed9',1795280947.83);
CREATE TABLE af_choice (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	plan_id INTEGER NOT NULL, 
	graph_key VARCHAR(64) NOT NULL, 
	median_us FLOAT, 
	trusted BOOLEAN NOT NULL, 
	details JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	device_id INTEGER NOT NULL, 
	target_id INTEGER NOT NULL, 
	threads INTEGER NOT NULL, 
	versions_id INTEGER NOT NULL, 
	CONSTRAINT pk_af_choice PRIMARY KEY (id), 
	CONSTRAINT fk_af_choice_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_choice_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT fk_af_choice_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_choice_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_choice_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id)
);
INSERT INTO "af_choice" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',101.0,1,'{}','2026-11-21 17:09:12.874643',1,1,1,1);
CREATE TABLE af_choice_group (
	id INTEGER NOT NULL, 
	choice_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	candidate_id INTEGER, 
	us FLOAT, 
	operators JSON NOT NULL, 
	CONSTRAINT pk_af_choice_group PRIMARY KEY (id), 
	CONSTRAINT fk_af_choice_group_choice_id FOREIGN KEY(choice_id) REFERENCES af_choice (id), 
	CONSTRAINT fk_af_choice_group_workload_id FOREIGN KEY(workload_id) REFERENCES af_workload (id), 
	CONSTRAINT fk_af_choice_group_candidate_id FOREIGN KEY(candidate_id) REFERENCES af_candidate (id), 
	CONSTRAINT uq_af_choice_group_choice_id_position UNIQUE (choice_id, position)
);
INSERT INTO "af_choice_group" VALUES(1,1,0,3,7,5.0,'["op"]');
CREATE TABLE af_device (
	id INTEGER NOT NULL, 
	fingerprint VARCHAR(128) NOT NULL, 
	name TEXT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_device PRIMARY KEY (id), 
	CONSTRAINT uq_af_device_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "af_device" VALUES(1,'5eec0dc419aa8337bf725f026fda9c78c1cb1c642eeaff9d6e1112f37783e942','laptop','{"cores": 2}','2026-11-21 17:09:12.443047');
CREATE TABLE af_edge (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	plan_id INTEGER NOT NULL, 
	producer TEXT NOT NULL, 
	consumer TEXT NOT NULL, 
	fused BOOLEAN NOT NULL, 
	reason VARCHAR(32) NOT NULL, 
	gain_us FLOAT, 
	p_model FLOAT, 
	CONSTRAINT pk_af_edge PRIMARY KEY (id), 
	CONSTRAINT fk_af_edge_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_edge_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT uq_af_edge_run_id_plan_id_producer_consumer UNIQUE (run_id, plan_id, producer, consumer)
);
INSERT INTO "af_edge" VALUES(1,1,1,'a','b',1,'chosen_measured',NULL,NULL);
CREATE TABLE af_job (
	id INTEGER NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	created_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	active_s FLOAT NOT NULL, 
	stop_asked BOOLEAN NOT NULL, 
	settings JSON NOT NULL, 
	summary JSON, 
	CONSTRAINT pk_af_job PRIMARY KEY (id), 
	CONSTRAINT ck_af_job_state CHECK (state IN ('running', 'finished', 'interrupted', 'failed')), 
	CONSTRAINT uq_af_job_name UNIQUE (name)
);
CREATE TABLE af_measurement (
	id INTEGER NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	run_id INTEGER, 
	uid VARCHAR(64) NOT NULL, 
	build_s FLOAT, 
	created_at DATETIME NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	failure TEXT, 
	median_us FLOAT, 
	ci_lo_us FLOAT, 
	ci_hi_us FLOAT, 
	trusted BOOLEAN, 
	max_rel_error FLOAT, 
	CONSTRAINT pk_af_measurement PRIMARY KEY (id), 
	CONSTRAINT fk_af_measurement_candidate_id FOREIGN KEY(candidate_id) REFERENCES af_candidate (id), 
	CONSTRAINT fk_af_measurement_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT ck_af_measurement_time_or_failure CHECK ((state = 'ok' AND failure IS NULL AND median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL) OR (state IN ('build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL)), 
	CONSTRAINT uq_af_measurement_uid UNIQUE (uid)
);
INSERT INTO "af_measurement" VALUES(1,1,1,'16a3fc346eb549229c9623493de4413f',NULL,'2026-11-21 17:09:12.530724','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(2,2,1,'c2c1e574487d415c84951514dea9ba93',1.0,'2026-11-21 17:09:12.552031','ok',NULL,9.49491064788738157141e+01,9.39996154140850706006e+01,9.58985975436625608363e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(3,1,1,'2e9ddaba373f4ada99da0a459b615759',1.0,'2026-11-21 17:09:12.571297','ok',NULL,5.93859586774234884378e+01,5.87920990906492519929e+01,5.99798182641977248872e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(4,3,1,'2d96b4e33fd64435afb1b32909d0feff',NULL,'2026-11-21 17:09:12.601000','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(5,3,1,'51c181aee633495a885267df0955ad13',NULL,'2026-11-21 17:09:12.615094','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(6,1,1,'51eea255a86c4252bf4e13521c5df74f',NULL,'2026-11-21 17:09:12.627382','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(7,4,1,'e89ceea925524ddca07c7071eaf74138',1.0,'2026-11-21 17:09:12.643385','ok',NULL,1.02762941436239827906e+02,1.01735312021877433608e+02,1.03790570850602222204e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(8,1,1,'a21e70a58f7943e295142ba8a4c0d086',1.0,'2026-11-21 17:09:12.645009','ok',NULL,8.45700414708752532498e+01,83.7243410561665,8.54157418855840120351e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(9,5,1,'832bf6834bc04b7780a6227d44e79939',1.0,'2026-11-21 17:09:12.804050','ok',NULL,1.4162698355052941679e+02,1.40210713715024127166e+02,1.43043253386034706405e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(10,6,1,'cac472344d4247e4998a5b6bd31cf9a7',1.0,'2026-11-21 17:09:12.805018','ok',NULL,1.12935290480064907112e+02,1.11805937575264252364e+02,1.14064643384865561871e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(11,2,1,'7bc5ee72bbf54549b19f408ce369310f',1.0,'2026-11-21 17:09:12.805719','ok',NULL,1.4732522570430617748e+02,1.45851973447263105754e+02,1.48798477961349249198e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(12,7,1,'63cd72636f1145eeb784c8dd34b2e5c7',1.0,'2026-11-21 17:09:12.813460','ok',NULL,8.0336851093291755891e+01,7.95334825823588431603e+01,8.11402196042246686129e+01,1,NULL);
CREATE TABLE af_plan (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	graph_key VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_plan PRIMARY KEY (id), 
	CONSTRAINT uq_af_plan_graph_key_key UNIQUE (graph_key, "key")
);
INSERT INTO "af_plan" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','{"groups": []}','origin1','2026-11-21 17:09:12.824662');
CREATE TABLE af_plan_measurement (
	id INTEGER NOT NULL, 
	run_id INTEGER, 
	plan_id INTEGER, 
	graph_key VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	series TEXT NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	blocks JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	device_id INTEGER NOT NULL, 
	target_id INTEGER NOT NULL, 
	threads INTEGER NOT NULL, 
	versions_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	failure TEXT, 
	median_us FLOAT, 
	ci_lo_us FLOAT, 
	ci_hi_us FLOAT, 
	trusted BOOLEAN, 
	max_rel_error FLOAT, 
	CONSTRAINT pk_af_plan_measurement PRIMARY KEY (id), 
	CONSTRAINT fk_af_plan_measurement_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_plan_measurement_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT fk_af_plan_measurement_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_plan_measurement_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_plan_measurement_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id), 
	CONSTRAINT ck_af_plan_measurement_time_or_failure CHECK ((state = 'ok' AND failure IS NULL AND median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL) OR (state IN ('build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL)), 
	CONSTRAINT uq_af_plan_measurement_uid UNIQUE (uid)
);
INSERT INTO "af_plan_measurement" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','search','s','22036a0c575941c597a1f6a6971cc1fe','[[[5.0], null, false], [[5.0], null, false]]','2026-11-21 17:09:12.856684',1,1,1,1,'ok',NULL,5.0,4.0,6.0,1,NULL);
INSERT INTO "af_plan_measurement" VALUES(2,1,NULL,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','tvm','s','4fec95990fe04f929a66ca7525f197fe','[]','2026-11-21 17:09:12.868515',1,1,1,1,'run_error','no',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE af_run (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	model_name TEXT NOT NULL, 
	model_sha256 VARCHAR(64) NOT NULL, 
	graph_key VARCHAR(64) NOT NULL, 
	seed BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	arguments JSON NOT NULL, 
	budget JSON NOT NULL, 
	provenance JSON NOT NULL, 
	summary JSON, 
	device_id INTEGER NOT NULL, 
	target_id INTEGER NOT NULL, 
	threads INTEGER NOT NULL, 
	versions_id INTEGER NOT NULL, 
	owner_host TEXT, 
	owner_pid INTEGER, 
	owner_boot_id TEXT, 
	owner_started FLOAT, 
	CONSTRAINT pk_af_run PRIMARY KEY (id), 
	CONSTRAINT fk_af_run_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_run_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_run_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id), 
	CONSTRAINT ck_af_run_state CHECK (state IN ('running', 'finished', 'interrupted', 'failed')), 
	CONSTRAINT ck_af_run_threads CHECK (threads > 0)
);
INSERT INTO "af_run" VALUES(1,'run1','net','0000000000000000000000000000000000000000000000000000000000000000','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',1,'finished','2026-11-21 17:09:12.483180','2026-11-21 17:09:12.896604','{}','{}','{}','{"seed": 1}',1,1,1,1,NULL,NULL,NULL,NULL);
CREATE TABLE af_sample (
	measurement_id INTEGER NOT NULL, 
	block INTEGER NOT NULL, 
	us JSON NOT NULL, 
	clock_ratio FLOAT, 
	flagged BOOLEAN NOT NULL, 
	CONSTRAINT pk_af_sample PRIMARY KEY (measurement_id, block), 
	CONSTRAINT fk_af_sample_measurement_id FOREIGN KEY(measurement_id) REFERENCES af_measurement (id)
)
 WITHOUT ROWID

;
INSERT INTO "af_sample" VALUES(2,0,'[93.9996]',1.0,0);
INSERT INTO "af_sample" VALUES(2,1,'[94.9491]',1.0,0);
INSERT INTO "af_sample" VALUES(2,2,'[95.8986]',1.0,0);
INSERT INTO "af_sample" VALUES(2,3,'[284.847]',1.0,1);
INSERT INTO "af_sample" VALUES(3,0,'[58.7921]',1.0,0);
INSERT INTO "af_sample" VALUES(3,1,'[59.386]',1.0,0);
INSERT INTO "af_sample" VALUES(3,2,'[59.9798]',1.0,0);
INSERT INTO "af_sample" VALUES(3,3,'[178.158]',1.0,1);
INSERT INTO "af_sample" VALUES(7,0,'[101.735]',1.0,0);
INSERT INTO "af_sample" VALUES(7,1,'[102.763]',1.0,0);
INSERT INTO "af_sample" VALUES(7,2,'[103.791]',1.0,0);
INSERT INTO "af_sample" VALUES(7,3,'[308.289]',1.0,1);
INSERT INTO "af_sample" VALUES(8,0,'[83.7243]',1.0,0);
INSERT INTO "af_sample" VALUES(8,1,'[84.57]',1.0,0);
INSERT INTO "af_sample" VALUES(8,2,'[85.4157]',1.0,0);
INSERT INTO "af_sample" VALUES(8,3,'[253.71]',1.0,1);
INSERT INTO "af_sample" VALUES(9,0,'[140.211]',1.0,0);
INSERT INTO "af_sample" VALUES(9,1,'[141.627]',1.0,0);
INSERT INTO "af_sample" VALUES(9,2,'[143.043]',1.0,0);
INSERT INTO "af_sample" VALUES(9,3,'[424.881]',1.0,1);
INSERT INTO "af_sample" VALUES(10,0,'[111.806]',1.0,0);
INSERT INTO "af_sample" VALUES(10,1,'[112.935]',1.0,0);
INSERT INTO "af_sample" VALUES(10,2,'[114.065]',1.0,0);
INSERT INTO "af_sample" VALUES(10,3,'[338.806]',1.0,1);
INSERT INTO "af_sample" VALUES(11,0,'[145.852]',1.0,0);
INSERT INTO "af_sample" VALUES(11,1,'[147.325]',1.0,0);
INSERT INTO "af_sample" VALUES(11,2,'[148.798]',1.0,0);
INSERT INTO "af_sample" VALUES(11,3,'[441.976]',1.0,1);
INSERT INTO "af_sample" VALUES(12,0,'[79.5335]',1.0,0);
INSERT INTO "af_sample" VALUES(12,1,'[80.3369]',1.0,0);
INSERT INTO "af_sample" VALUES(12,2,'[81.1402]',1.0,0);
INSERT INTO "af_sample" VALUES(12,3,'[241.011]',1.0,1);
CREATE TABLE af_schedule (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_af_schedule PRIMARY KEY (id), 
	CONSTRAINT uq_af_schedule_key UNIQUE ("key")
);
INSERT INTO "af_schedule" VALUES(1,'8b3c00576bfca6bf61487251c573c881f50f42be6c2f80e422005e6212e95842','{"tile":0}');
INSERT INTO "af_schedule" VALUES(2,'da70d5a63e407a78fd7ceb41de0420c6465135eeaff3c0605912394c1a911aab','{"tile":1}');
INSERT INTO "af_schedule" VALUES(3,'3696d060f0698f7f61e27572ad2b473eadfdb5cb231ba9e47338ebfb1fe14688','{"tile":2}');
INSERT INTO "af_schedule" VALUES(4,'f76320df5cf821ea883392a678611cd591f25f45a9a9d2d15511d19c0110cb9d','{"tile":3}');
INSERT INTO "af_schedule" VALUES(5,'f0e31b3bd73e8a7d03ec0b04e2c6f6a2f1694d9c68fdd10eeda1a756c9319a68','{"tile":99}');
CREATE TABLE af_target (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_af_target PRIMARY KEY (id), 
	CONSTRAINT uq_af_target_key UNIQUE ("key")
);
INSERT INTO "af_target" VALUES(1,'7750972dc5a6fe4345ccb279aeba6b2feea4cf36224b958fb99124a1425cc38d','{"cores":2,"l1_bytes":32768,"l2_bytes":1048576,"lanes":16,"mattr":[],"mcpu":"znver4","mtriple":null,"registers":32}');
CREATE TABLE af_task (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	model_sha256 VARCHAR(64) NOT NULL, 
	device TEXT NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	beat FLOAT, 
	attempts INTEGER NOT NULL, 
	spent_s FLOAT NOT NULL, 
	reserve_s FLOAT, 
	gain FLOAT, 
	measured INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	best_us FLOAT, 
	baseline_us FLOAT, 
	run_id INTEGER, 
	failure TEXT, 
	result JSON, 
	owner_host TEXT, 
	owner_pid INTEGER, 
	owner_boot_id TEXT, 
	owner_started FLOAT, 
	CONSTRAINT pk_af_task PRIMARY KEY (id), 
	CONSTRAINT fk_af_task_job_id FOREIGN KEY(job_id) REFERENCES af_job (id), 
	CONSTRAINT fk_af_task_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT ck_af_task_state CHECK (state IN ('queued', 'running', 'done', 'failed')), 
	CONSTRAINT ck_af_task_phase CHECK (phase IN ('search', 'confirm')), 
	CONSTRAINT uq_af_task_job_id_position UNIQUE (job_id, position)
);
CREATE TABLE af_trial (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	answers JSON NOT NULL, 
	plan_id INTEGER, 
	composed_us FLOAT, 
	state VARCHAR(16) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_trial PRIMARY KEY (id), 
	CONSTRAINT fk_af_trial_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_trial_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT uq_af_trial_run_id_number UNIQUE (run_id, number), 
	CONSTRAINT ck_af_trial_state CHECK (state IN ('running', 'complete', 'pruned', 'fail') AND (state = 'complete') = (composed_us IS NOT NULL))
);
INSERT INTO "af_trial" VALUES(1,1,0,'{"x": 0}',1,9.0,'complete','2026-11-21 17:09:12.841166');
INSERT INTO "af_trial" VALUES(2,1,1,'{"x": 1}',1,8.0,'complete','2026-11-21 17:09:12.848477');
INSERT INTO "af_trial" VALUES(3,1,2,'{"x": 2}',1,11.0,'complete','2026-11-21 17:09:12.854681');
CREATE TABLE af_versions (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_af_versions PRIMARY KEY (id), 
	CONSTRAINT uq_af_versions_key UNIQUE ("key")
);
INSERT INTO "af_versions" VALUES(1,'1554a784232c73cb5295c8f2b5b57fa48749266a8b8a00065b1b10ea26b3e78f','{"tvm":"0.27"}');
CREATE TABLE af_workload (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	label TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_workload PRIMARY KEY (id), 
	CONSTRAINT uq_af_workload_key UNIQUE ("key")
);
INSERT INTO "af_workload" VALUES(1,'a1c29b520183415c052e1f4806ed2e9dbfcf8d998cc73c2e99553135ffe0d793','{"workload": "matmul"}','matmul','2026-11-21 17:09:12.509805');
INSERT INTO "af_workload" VALUES(2,'e6f420bbf4074da78029ff25363a0d29503c74b2814f9e34de9c79e3a91cac5f','{"workload": "pool"}','pool','2026-11-21 17:09:12.600414');
INSERT INTO "af_workload" VALUES(3,'facfe72be1e5fb927456d7638619c84572f83fef287e53612f742bf06ec60336','{"workload": "conv"}','conv','2026-11-21 17:09:12.803785');
CREATE INDEX ix_af_run_model_sha256_device_id_threads ON af_run (model_sha256, device_id, threads);
CREATE INDEX ix_af_run_name ON af_run (name);
CREATE INDEX ix_af_candidate_best ON af_candidate (workload_id, device_id, target_id, threads, state, trusted, median_us, versions_id, schedule_id);
CREATE INDEX ix_af_candidate_pending ON af_candidate (state) WHERE state IN ('queued', 'building', 'running');
CREATE INDEX ix_af_measurement_candidate_id ON af_measurement (candidate_id);
CREATE INDEX ix_af_measurement_run_id_state ON af_measurement (run_id, state);
CREATE INDEX ix_af_plan_measurement_graph_key_device_id_target_id_threads ON af_plan_measurement (graph_key, device_id, target_id, threads);
CREATE INDEX ix_af_plan_measurement_run_id ON af_plan_measurement (run_id);
CREATE INDEX ix_af_choice_graph_key_device_id_target_id_threads ON af_choice (graph_key, device_id, target_id, threads);
CREATE INDEX ix_af_choice_run_id ON af_choice (run_id);
CREATE INDEX ix_af_task_job_id_state_phase_device ON af_task (job_id, state, phase, device);
CREATE INDEX ix_af_board_job_id ON af_board (job_id);
COMMIT;
