BEGIN TRANSACTION;
CREATE TABLE af_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT af_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "af_alembic_version" VALUES('r0004');
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
	code_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	target_id INTEGER NOT NULL, 
	versions_id INTEGER NOT NULL, 
	build_s FLOAT, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	threads INTEGER NOT NULL, 
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
	CONSTRAINT fk_af_candidate_code_id FOREIGN KEY(code_id) REFERENCES af_code (id), 
	CONSTRAINT fk_af_candidate_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_candidate_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_candidate_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id), 
	CONSTRAINT ck_af_candidate_time_or_failure CHECK ((state = 'ok' AND failure IS NULL AND median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL) OR (state IN ('build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL) OR (state IN ('queued', 'building', 'running') AND failure IS NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL)), 
	CONSTRAINT ck_af_candidate_threads CHECK (threads > 0), 
	CONSTRAINT uq_af_candidate_identity UNIQUE (workload_id, schedule_id, device_id, target_id, threads, versions_id, code_id)
);
INSERT INTO "af_candidate" VALUES(1,1,1,1,1,1,1,1.0,'2026-11-23 09:00:29.302079','2026-11-23 09:00:29.352142',1,'ok',NULL,7.2338950000000011185e+01,63.8612,81.1332,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(2,1,2,2,1,1,1,1.0,'2026-11-23 09:00:29.309040','2026-11-23 09:00:29.309040',1,'ok',NULL,5.66515095679589890647e+01,56.0849944722794,5.72180246636385803071e+01,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(3,1,3,3,1,1,1,NULL,'2026-11-23 09:00:29.309697','2026-11-23 09:00:29.309697',1,'timeout','over 30 s',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(4,2,3,4,1,1,1,1.0,'2026-11-23 09:00:29.310214','2026-11-23 09:00:29.310214',1,'ok',NULL,1.42747563142806029642e+02,1.41320087511377977303e+02,1.44175038774234081989e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(5,3,3,5,1,1,1,1.0,'2026-11-23 09:00:29.310733','2026-11-23 09:00:29.311603',1,'ok',NULL,8.09849957299535532211e+01,8.0175145772654019538e+01,8.17948456872530869042e+01,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(6,2,2,6,1,1,1,1.0,'2026-11-23 09:00:29.311177','2026-11-23 09:00:29.343146',1,'ok',NULL,91.3946,79.1942,110.585,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(7,3,4,7,1,1,1,1.0,'2026-11-23 09:00:29.351595','2026-11-23 09:00:29.351595',1,'ok',NULL,1.49747198283995089701e+02,1.48249726301155135385e+02,1.51244670266835044003e+02,1,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_choice" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',104.0,1,'{}','2026-11-23 09:00:29.378179',1,1,1,1);
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
INSERT INTO "af_choice_group" VALUES(1,1,0,1,1,5.0,'["op"]');
CREATE TABLE af_code (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_af_code PRIMARY KEY (id), 
	CONSTRAINT uq_af_code_digest UNIQUE (digest)
);
INSERT INTO "af_code" VALUES(1,'6517585aca5190f1c161e358fd27a2ba03f9654f7c2b828b867de2ccbb017acb');
INSERT INTO "af_code" VALUES(2,'5f14d253052eb4546d1ebc8b654881ac95a7457abd8cbd80c23e12552a0e0a32');
INSERT INTO "af_code" VALUES(3,'edf703236217e19deecab747d61ac9c110a271d38953c4746856b0607560026b');
INSERT INTO "af_code" VALUES(4,'63150a29aa8e2ac024bd1ce1543026157633a2a10b73add3b4b9e2ee6f9adf5b');
INSERT INTO "af_code" VALUES(5,'ee737f85e48d10f099d57aca5396025146227824cd96280cb6d1a8c6d4bef80d');
INSERT INTO "af_code" VALUES(6,'27ca9bd611ffc22ae23e9afe802a88510a62671eda75f56a993d2711260d0dae');
INSERT INTO "af_code" VALUES(7,'0cc9d869941d72f161b0575a3cd364b64881fa9379b124ee6e5b42d3273c0a7e');
CREATE TABLE af_device (
	id INTEGER NOT NULL, 
	fingerprint VARCHAR(128) NOT NULL, 
	name TEXT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_device PRIMARY KEY (id), 
	CONSTRAINT uq_af_device_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "af_device" VALUES(1,'5eec0dc419aa8337bf725f026fda9c78c1cb1c642eeaff9d6e1112f37783e942','laptop','{"cores": 2}','2026-11-23 09:00:29.283969');
CREATE TABLE af_doubt (
	id INTEGER NOT NULL, 
	measurement_id INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_doubt PRIMARY KEY (id), 
	CONSTRAINT fk_af_doubt_measurement_id FOREIGN KEY(measurement_id) REFERENCES af_measurement (id), 
	CONSTRAINT uq_af_doubt_measurement_id UNIQUE (measurement_id)
);
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
INSERT INTO "af_measurement" VALUES(1,1,1,'0c85bb24b6e8462f8ba285eb1a673139',1.0,'2026-11-23 09:00:29.302079','ok',NULL,80.329858588551,7.95265600026654908552e+01,8.11331571744365191971e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(2,2,1,'ed1d29aa749f46da83392029ee523011',1.0,'2026-11-23 09:00:29.309040','ok',NULL,5.66515095679589890647e+01,56.0849944722794,5.72180246636385803071e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(3,3,1,'e566a717474845808ce78f33ea448b4b',NULL,'2026-11-23 09:00:29.309697','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(4,4,1,'d8945c84c2124681925d9885f3d10ef3',1.0,'2026-11-23 09:00:29.310214','ok',NULL,1.42747563142806029642e+02,1.41320087511377977303e+02,1.44175038774234081989e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(5,5,1,'0d5d40a6b5af45c49aef3463d54a97c5',1.0,'2026-11-23 09:00:29.310733','ok',NULL,8.09849957299535532211e+01,8.0175145772654019538e+01,8.17948456872530869042e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(6,6,1,'ea53ea72209e492ca73d9e54382bdf41',1.0,'2026-11-23 09:00:29.311177','ok',NULL,1.10585188371987982233e+02,1.09479336488268103261e+02,1.11691040255707861204e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(7,5,1,'dbc19fc3ce374eec913fe6566eabb448',NULL,'2026-11-23 09:00:29.311603','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(8,6,1,'279868997f9742958c59462192c7e4c0',1.0,'2026-11-23 09:00:29.339670','ok',NULL,7.91941669377437165158e+01,7.84022252683662799208e+01,7.99861086071211531151e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(9,6,1,'927995777d434b9e96228e76e5f958be',1.0,'2026-11-23 09:00:29.343146','ok',NULL,91.3946043131732,9.04806582700414736581e+01,9.23085503563049343273e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(10,1,1,'af60802fb03e4dd89d8d2c2e093b9011',NULL,'2026-11-23 09:00:29.349935','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(11,7,1,'fbdc5199fc334025af705420a06b7bb1',1.0,'2026-11-23 09:00:29.351595','ok',NULL,1.49747198283995089701e+02,1.48249726301155135385e+02,1.51244670266835044003e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(12,1,1,'a3abefc65b5c4642a5cdb43b856fb440',1.0,'2026-11-23 09:00:29.352142','ok',NULL,6.45062759498349294054e+01,6.38612131903365778376e+01,6.51513387093332738695e+01,1,NULL);
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
INSERT INTO "af_plan" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','{"groups": []}','origin4','2026-11-23 09:00:29.353713');
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
INSERT INTO "af_plan_measurement" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','search','s','2bba61e0def04505aff3494ad9b33ad6','[[[5.0], null, false], [[5.0], null, false]]','2026-11-23 09:00:29.374590',1,1,1,1,'ok',NULL,5.0,4.0,6.0,1,NULL);
INSERT INTO "af_plan_measurement" VALUES(2,1,NULL,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','tvm','s','09466cf33f51400282576ba68dab4b0d','[]','2026-11-23 09:00:29.376826',1,1,1,1,'run_error','no',NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_run" VALUES(1,'run4','net','0000000000000000000000000000000000000000000000000000000000000000','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',4,'finished','2026-11-23 09:00:29.296156','2026-11-23 09:00:29.390339','{}','{}','{}','{"seed": 4}',1,1,1,1,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_sample" VALUES(1,0,'[79.5266]',1.0,0);
INSERT INTO "af_sample" VALUES(1,1,'[80.3299]',1.0,0);
INSERT INTO "af_sample" VALUES(1,2,'[81.1332]',1.0,0);
INSERT INTO "af_sample" VALUES(1,3,'[240.99]',1.0,1);
INSERT INTO "af_sample" VALUES(2,0,'[56.085]',1.0,0);
INSERT INTO "af_sample" VALUES(2,1,'[56.6515]',1.0,0);
INSERT INTO "af_sample" VALUES(2,2,'[57.218]',1.0,0);
INSERT INTO "af_sample" VALUES(2,3,'[169.955]',1.0,1);
INSERT INTO "af_sample" VALUES(4,0,'[141.32]',1.0,0);
INSERT INTO "af_sample" VALUES(4,1,'[142.748]',1.0,0);
INSERT INTO "af_sample" VALUES(4,2,'[144.175]',1.0,0);
INSERT INTO "af_sample" VALUES(4,3,'[428.243]',1.0,1);
INSERT INTO "af_sample" VALUES(5,0,'[80.1751]',1.0,0);
INSERT INTO "af_sample" VALUES(5,1,'[80.985]',1.0,0);
INSERT INTO "af_sample" VALUES(5,2,'[81.7948]',1.0,0);
INSERT INTO "af_sample" VALUES(5,3,'[242.955]',1.0,1);
INSERT INTO "af_sample" VALUES(6,0,'[109.479]',1.0,0);
INSERT INTO "af_sample" VALUES(6,1,'[110.585]',1.0,0);
INSERT INTO "af_sample" VALUES(6,2,'[111.691]',1.0,0);
INSERT INTO "af_sample" VALUES(6,3,'[331.756]',1.0,1);
INSERT INTO "af_sample" VALUES(8,0,'[78.4022]',1.0,0);
INSERT INTO "af_sample" VALUES(8,1,'[79.1942]',1.0,0);
INSERT INTO "af_sample" VALUES(8,2,'[79.9861]',1.0,0);
INSERT INTO "af_sample" VALUES(8,3,'[237.583]',1.0,1);
INSERT INTO "af_sample" VALUES(9,0,'[90.4807]',1.0,0);
INSERT INTO "af_sample" VALUES(9,1,'[91.3946]',1.0,0);
INSERT INTO "af_sample" VALUES(9,2,'[92.3086]',1.0,0);
INSERT INTO "af_sample" VALUES(9,3,'[274.184]',1.0,1);
INSERT INTO "af_sample" VALUES(11,0,'[148.25]',1.0,0);
INSERT INTO "af_sample" VALUES(11,1,'[149.747]',1.0,0);
INSERT INTO "af_sample" VALUES(11,2,'[151.245]',1.0,0);
INSERT INTO "af_sample" VALUES(11,3,'[449.242]',1.0,1);
INSERT INTO "af_sample" VALUES(12,0,'[63.8612]',1.0,0);
INSERT INTO "af_sample" VALUES(12,1,'[64.5063]',1.0,0);
INSERT INTO "af_sample" VALUES(12,2,'[65.1513]',1.0,0);
INSERT INTO "af_sample" VALUES(12,3,'[193.519]',1.0,1);
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
INSERT INTO "af_trial" VALUES(1,1,0,'{"x": 0}',1,9.0,'complete','2026-11-23 09:00:29.364164');
INSERT INTO "af_trial" VALUES(2,1,1,'{"x": 1}',1,8.0,'complete','2026-11-23 09:00:29.366703');
INSERT INTO "af_trial" VALUES(3,1,2,'{"x": 2}',1,11.0,'complete','2026-11-23 09:00:29.372842');
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
INSERT INTO "af_workload" VALUES(1,'facfe72be1e5fb927456d7638619c84572f83fef287e53612f742bf06ec60336','{"workload": "conv"}','conv','2026-11-23 09:00:29.299777');
INSERT INTO "af_workload" VALUES(2,'a1c29b520183415c052e1f4806ed2e9dbfcf8d998cc73c2e99553135ffe0d793','{"workload": "matmul"}','matmul','2026-11-23 09:00:29.310060');
INSERT INTO "af_workload" VALUES(3,'e6f420bbf4074da78029ff25363a0d29503c74b2814f9e34de9c79e3a91cac5f','{"workload": "pool"}','pool','2026-11-23 09:00:29.310597');
CREATE INDEX ix_af_run_model_sha256_device_id_threads ON af_run (model_sha256, device_id, threads);
CREATE INDEX ix_af_run_name ON af_run (name);
CREATE INDEX ix_af_measurement_candidate_id ON af_measurement (candidate_id);
CREATE INDEX ix_af_measurement_run_id_state ON af_measurement (run_id, state);
CREATE INDEX ix_af_plan_measurement_graph_key_device_id_target_id_threads ON af_plan_measurement (graph_key, device_id, target_id, threads);
CREATE INDEX ix_af_plan_measurement_run_id ON af_plan_measurement (run_id);
CREATE INDEX ix_af_choice_graph_key_device_id_target_id_threads ON af_choice (graph_key, device_id, target_id, threads);
CREATE INDEX ix_af_choice_run_id ON af_choice (run_id);
CREATE INDEX ix_af_task_job_id_state_phase_device ON af_task (job_id, state, phase, device);
CREATE INDEX ix_af_board_job_id ON af_board (job_id);
CREATE INDEX ix_af_candidate_best ON af_candidate (workload_id, device_id, target_id, threads, state, trusted, median_us, versions_id, schedule_id, code_id, created_at);
CREATE INDEX ix_af_candidate_pending ON af_candidate (state) WHERE state IN ('queued', 'building', 'running');
COMMIT;
