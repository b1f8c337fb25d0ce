BEGIN TRANSACTION;
CREATE TABLE af_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT af_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "af_alembic_version" VALUES('r0005');
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
INSERT INTO "af_board" VALUES(1,1,'pi:9091','raspberry-pi-5','lost',NULL,'no answer',7,NULL,NULL,NULL,NULL);
INSERT INTO "af_board" VALUES(2,1,'local 2','local','left',NULL,'',9,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_candidate" VALUES(1,1,1,1,1,1,1,1.0,'2026-11-23 13:22:31.686816','2026-11-23 13:22:31.693155',1,'ok',NULL,1.29519356556569675831e+02,1.28224162991003964862e+02,1.308145501221353868e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(2,2,2,2,1,1,1,1.0,'2026-11-23 13:22:31.709353','2026-11-23 13:22:31.709353',1,'ok',NULL,1.40090049175062290485e+02,1.38689148683311657349e+02,1.41490949666812923621e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(3,1,3,3,1,1,1,1.0,'2026-11-23 13:22:31.709990','2026-11-23 13:22:31.714365',1,'ok',NULL,1.46147798895008349971e+02,1.44686320906058256243e+02,1.47609276883958443708e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(4,2,1,4,1,1,1,1.0,'2026-11-23 13:22:31.710421','2026-11-23 13:22:31.710773',1,'ok',NULL,90.8151054974514,8.99069544424768878326e+01,9.17232565524259086959e+01,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(5,2,3,5,1,1,1,NULL,'2026-11-23 13:22:31.714034','2026-11-23 13:22:31.714034',1,'timeout','over 30 s',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(6,3,4,6,1,1,1,1.0,'2026-11-23 13:22:31.716909','2026-11-23 13:22:31.718201',1,'ok',NULL,5.6602245055107715645e+01,5.60362226045566345087e+01,57.1682675056588,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(7,3,1,7,1,1,1,NULL,'2026-11-23 13:22:31.717299','2026-11-23 13:22:31.717299',1,'timeout','over 30 s',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(8,2,4,8,1,1,1,1.0,'2026-11-23 13:22:31.717833','2026-11-23 13:22:31.717833',1,'ok',NULL,1.31740031095676101812e+02,1.30422630784719331133e+02,1.33057431406632872491e+02,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_candidate" VALUES(9,2,5,9,1,1,1,NULL,'2026-11-23 13:22:31.719314','2026-11-23 13:22:31.719314',1,'building',NULL,NULL,NULL,NULL,NULL,NULL,'here',1,'b',1.0);
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
	versions_id INTEGER NOT NULL, limits JSON, 
	CONSTRAINT pk_af_choice PRIMARY KEY (id), 
	CONSTRAINT fk_af_choice_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_choice_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT fk_af_choice_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_choice_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_choice_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id)
);
INSERT INTO "af_choice" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',105.0,1,'{}','2026-11-23 13:22:31.740980',1,1,1,1,NULL);
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
INSERT INTO "af_choice_group" VALUES(1,1,0,2,6,5.0,'["op"]');
CREATE TABLE af_code (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_af_code PRIMARY KEY (id), 
	CONSTRAINT uq_af_code_digest UNIQUE (digest)
);
INSERT INTO "af_code" VALUES(1,'9d238a257dd7a225ce43ffc5839aa06c7dbdf028b6d18f4573f8e25030c5bdd9');
INSERT INTO "af_code" VALUES(2,'68698f0518832f125b9e928637d0825bbd8793c3d167c61ca7ea686132bc4ae0');
INSERT INTO "af_code" VALUES(3,'5c48a8267c3aa11100826a71b2f552d54d30326447778646d5e849182756c094');
INSERT INTO "af_code" VALUES(4,'6517585aca5190f1c161e358fd27a2ba03f9654f7c2b828b867de2ccbb017acb');
INSERT INTO "af_code" VALUES(5,'5f14d253052eb4546d1ebc8b654881ac95a7457abd8cbd80c23e12552a0e0a32');
INSERT INTO "af_code" VALUES(6,'63150a29aa8e2ac024bd1ce1543026157633a2a10b73add3b4b9e2ee6f9adf5b');
INSERT INTO "af_code" VALUES(7,'9ed9af03bce6af50b2529309caddbf118aff7fc2214b978e3a81973877f82b43');
INSERT INTO "af_code" VALUES(8,'edf703236217e19deecab747d61ac9c110a271d38953c4746856b0607560026b');
INSERT INTO "af_code" VALUES(9,'ea76f9f0e41f598885582e7c0f29eb14638b068ac5c4d49e1ab43529379f5b1c');
CREATE TABLE af_device (
	id INTEGER NOT NULL, 
	fingerprint VARCHAR(128) NOT NULL, 
	name TEXT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_af_device PRIMARY KEY (id), 
	CONSTRAINT uq_af_device_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "af_device" VALUES(1,'859169b38185780daa5497983ff20d2994390058d8a71f2847ac7846f970971e','board','{"cores": 2}','2026-11-23 13:22:31.677154');
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
	CONSTRAINT pk_af_edge PRIMARY KEY (id), 
	CONSTRAINT fk_af_edge_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_edge_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT uq_af_edge_run_id_plan_id_producer_consumer UNIQUE (run_id, plan_id, producer, consumer)
);
INSERT INTO "af_edge" VALUES(1,1,1,'a','b',1,'chosen_measured',NULL);
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
INSERT INTO "af_job" VALUES(1,'night','interrupted','2026-11-23 02:00:00.000000',NULL,60.0,0,'{"budget_s": 600.0}',NULL);
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
INSERT INTO "af_measurement" VALUES(1,1,1,'ae4d17d674924b32ac48313652fa3cc3',1.0,'2026-11-23 13:22:31.686816','ok',NULL,1.29519356556569675831e+02,1.28224162991003964862e+02,1.308145501221353868e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(2,1,1,'b91066f544804998bbbbc5f57cf697db',NULL,'2026-11-23 13:22:31.693155','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(3,2,1,'40e4e8eec27f4fa6ad189d5da36cac89',1.0,'2026-11-23 13:22:31.709353','ok',NULL,1.40090049175062290485e+02,1.38689148683311657349e+02,1.41490949666812923621e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(4,3,1,'fd4d8271c2e147788d11757ce44d3517',NULL,'2026-11-23 13:22:31.709990','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(5,4,1,'03eba5ebe33f47af818b8ba8c17ab6d1',1.0,'2026-11-23 13:22:31.710421','ok',NULL,90.8151054974514,8.99069544424768878326e+01,9.17232565524259086959e+01,1,NULL);
INSERT INTO "af_measurement" VALUES(6,4,1,'299cb12c5be74e6ba8319df19e905de2',NULL,'2026-11-23 13:22:31.710773','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(7,5,1,'8986ffbe79dd48fb8740b8f661baa3f3',NULL,'2026-11-23 13:22:31.714034','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(8,3,1,'74e0cc75644f4d308b8056b2d56eecd4',1.0,'2026-11-23 13:22:31.714365','ok',NULL,1.46147798895008349971e+02,1.44686320906058256243e+02,1.47609276883958443708e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(9,6,1,'920e40d47bb64d7bac9636071d8d5130',NULL,'2026-11-23 13:22:31.716909','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(10,7,1,'0b34122e47e7441fbbb7124c2fb80fe7',NULL,'2026-11-23 13:22:31.717299','timeout','over 30 s',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "af_measurement" VALUES(11,8,1,'460e61524ace4f35998facd058a6f080',1.0,'2026-11-23 13:22:31.717833','ok',NULL,1.31740031095676101812e+02,1.30422630784719331133e+02,1.33057431406632872491e+02,1,NULL);
INSERT INTO "af_measurement" VALUES(12,6,1,'cb50639b9c364d3fb3736dcae65839e3',1.0,'2026-11-23 13:22:31.718201','ok',NULL,5.6602245055107715645e+01,5.60362226045566345087e+01,57.1682675056588,1,NULL);
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
INSERT INTO "af_plan" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','{"groups": []}','origin5','2026-11-23 13:22:31.721052');
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
	max_rel_error FLOAT, limits JSON, 
	CONSTRAINT pk_af_plan_measurement PRIMARY KEY (id), 
	CONSTRAINT fk_af_plan_measurement_run_id FOREIGN KEY(run_id) REFERENCES af_run (id), 
	CONSTRAINT fk_af_plan_measurement_plan_id FOREIGN KEY(plan_id) REFERENCES af_plan (id), 
	CONSTRAINT fk_af_plan_measurement_device_id FOREIGN KEY(device_id) REFERENCES af_device (id), 
	CONSTRAINT fk_af_plan_measurement_target_id FOREIGN KEY(target_id) REFERENCES af_target (id), 
	CONSTRAINT fk_af_plan_measurement_versions_id FOREIGN KEY(versions_id) REFERENCES af_versions (id), 
	CONSTRAINT ck_af_plan_measurement_time_or_failure CHECK ((state = 'ok' AND failure IS NULL AND median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL) OR (state IN ('build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL)), 
	CONSTRAINT uq_af_plan_measurement_uid UNIQUE (uid)
);
INSERT INTO "af_plan_measurement" VALUES(1,1,1,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','search','s','1b39fa117da949dfb83546a8fc5d8346','[[[5.0], null, false], [[5.0], null, false]]','2026-11-23 13:22:31.737678',1,1,1,1,'ok',NULL,5.0,4.0,6.0,1,NULL,NULL);
INSERT INTO "af_plan_measurement" VALUES(2,1,NULL,'eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d','tvm','s','6bd24609f0944acc84868f3dc20e16a0','[]','2026-11-23 13:22:31.740042',1,1,1,1,'run_error','no',NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_run" VALUES(1,'run5','net','0000000000000000000000000000000000000000000000000000000000000000','eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d',5,'finished','2026-11-23 13:22:31.682527','2026-11-23 13:22:31.747001','{}','{}','{}','{"seed": 5}',1,1,1,1,NULL,NULL,NULL,NULL);
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
INSERT INTO "af_sample" VALUES(1,0,'[128.224]',1.0,0);
INSERT INTO "af_sample" VALUES(1,1,'[129.519]',1.0,0);
INSERT INTO "af_sample" VALUES(1,2,'[130.815]',1.0,0);
INSERT INTO "af_sample" VALUES(1,3,'[388.558]',1.0,1);
INSERT INTO "af_sample" VALUES(3,0,'[138.689]',1.0,0);
INSERT INTO "af_sample" VALUES(3,1,'[140.09]',1.0,0);
INSERT INTO "af_sample" VALUES(3,2,'[141.491]',1.0,0);
INSERT INTO "af_sample" VALUES(3,3,'[420.27]',1.0,1);
INSERT INTO "af_sample" VALUES(5,0,'[89.907]',1.0,0);
INSERT INTO "af_sample" VALUES(5,1,'[90.8151]',1.0,0);
INSERT INTO "af_sample" VALUES(5,2,'[91.7233]',1.0,0);
INSERT INTO "af_sample" VALUES(5,3,'[272.445]',1.0,1);
INSERT INTO "af_sample" VALUES(8,0,'[144.686]',1.0,0);
INSERT INTO "af_sample" VALUES(8,1,'[146.148]',1.0,0);
INSERT INTO "af_sample" VALUES(8,2,'[147.609]',1.0,0);
INSERT INTO "af_sample" VALUES(8,3,'[438.443]',1.0,1);
INSERT INTO "af_sample" VALUES(11,0,'[130.423]',1.0,0);
INSERT INTO "af_sample" VALUES(11,1,'[131.74]',1.0,0);
INSERT INTO "af_sample" VALUES(11,2,'[133.057]',1.0,0);
INSERT INTO "af_sample" VALUES(11,3,'[395.22]',1.0,1);
INSERT INTO "af_sample" VALUES(12,0,'[56.0362]',1.0,0);
INSERT INTO "af_sample" VALUES(12,1,'[56.6022]',1.0,0);
INSERT INTO "af_sample" VALUES(12,2,'[57.1683]',1.0,0);
INSERT INTO "af_sample" VALUES(12,3,'[169.807]',1.0,1);
CREATE TABLE af_schedule (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_af_schedule PRIMARY KEY (id), 
	CONSTRAINT uq_af_schedule_key UNIQUE ("key")
);
INSERT INTO "af_schedule" VALUES(1,'8b3c00576bfca6bf61487251c573c881f50f42be6c2f80e422005e6212e95842','{"tile":0}');
INSERT INTO "af_schedule" VALUES(2,'f76320df5cf821ea883392a678611cd591f25f45a9a9d2d15511d19c0110cb9d','{"tile":3}');
INSERT INTO "af_schedule" VALUES(3,'da70d5a63e407a78fd7ceb41de0420c6465135eeaff3c0605912394c1a911aab','{"tile":1}');
INSERT INTO "af_schedule" VALUES(4,'3696d060f0698f7f61e27572ad2b473eadfdb5cb231ba9e47338ebfb1fe14688','{"tile":2}');
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
INSERT INTO "af_trial" VALUES(1,1,0,'{"x": 0}',1,9.0,'complete','2026-11-23 13:22:31.726993');
INSERT INTO "af_trial" VALUES(2,1,1,'{"x": 1}',1,8.0,'complete','2026-11-23 13:22:31.733989');
INSERT INTO "af_trial" VALUES(3,1,2,'{"x": 2}',1,11.0,'complete','2026-11-23 13:22:31.735219');
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
INSERT INTO "af_workload" VALUES(1,'e6f420bbf4074da78029ff25363a0d29503c74b2814f9e34de9c79e3a91cac5f','{"workload": "pool"}','pool','2026-11-23 13:22:31.685125');
INSERT INTO "af_workload" VALUES(2,'facfe72be1e5fb927456d7638619c84572f83fef287e53612f742bf06ec60336','{"workload": "conv"}','conv','2026-11-23 13:22:31.709040');
INSERT INTO "af_workload" VALUES(3,'a1c29b520183415c052e1f4806ed2e9dbfcf8d998cc73c2e99553135ffe0d793','{"workload": "matmul"}','matmul','2026-11-23 13:22:31.715347');
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
