-- Tables of an application that uses every type of column and every kind of key, made at both pods of a test.

create table if not exists every_type (
  shop_id bigint unsigned not null,
  k1 varchar(20) character set utf8mb4 collate utf8mb4_0900_ai_ci not null,
  k2 enum('z','a','','3','it''s') not null,
  k3 binary(4) not null,
  k4 bigint not null,
  ti tinyint, tu tinyint unsigned, si smallint, su smallint unsigned zerofill, mi mediumint, mu mediumint unsigned, ii int, iu int unsigned, bi bigint, bu bigint unsigned,
  bo boolean, de decimal(65,30), d0 decimal(5,0) unsigned, f float, fd float(10,3), d double, dd double(20,5),
  b1 bit(1), b17 bit(17), b64 bit(64),
  da date, t0 time, t6 time(6), dt datetime, d6 datetime(6), ts timestamp null, ts6 timestamp(6) null default null on update current_timestamp(6), ye year,
  c char(10), cl char(10) character set latin1 collate latin1_german2_ci, vc varchar(100), vl varchar(100) character set latin1, v3 varchar(50) character set utf8mb3, vu varchar(50) character set utf16, vu3 varchar(20) character set utf32, vs varchar(20) character set sjis, vg varchar(20) character set gb18030, ucs varchar(20) character set ucs2, vcs varchar(20) collate utf8mb4_bin,
  bin binary(4), vb varbinary(300), tb tinyblob, bl blob, mb mediumblob, lb longblob, tt tinytext, tx text, mt mediumtext, lt longtext character set latin1,
  en enum('a','','b'), st set('x','y','z'''), s64 set('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','c0','c1','c2','c3','c4','c5','c6','c7','c8','c9','d0','d1','d2','d3','d4','d5','d6','d7','d8','d9','e0','e1','e2','e3','e4','e5','e6','e7','e8','e9','f0','f1','f2','f3','f4','f5','f6','f7','f8','f9','g0','g1','g2','g3'),
  j json, g geometry, gp point srid 4326, gc geometrycollection, ve vector(3),
  inv int invisible default 7, dx varchar(36) default (uuid()), `odd ``name` int, `select` int,
  gv int generated always as (ii + 1) virtual, gs varchar(120) generated always as (concat(vc,'!')) stored, gh binary(32) generated always as (unhex(sha2(vc,0)) ) virtual,
  ai bigint unsigned not null auto_increment,
  primary key (shop_id, k1, k2, k3, k4 desc),
  unique key u1 (shop_id, ai), key ai (ai), unique key u2 (shop_id, iu), key g1 (gv), key vci (vc(10), shop_id)
);
create table if not exists k_int (shop_id bigint unsigned not null, k int not null, v varchar(50), primary key (shop_id,k));
create table if not exists k_uns (shop_id bigint unsigned not null, k bigint unsigned not null, v varchar(50), primary key (shop_id,k));
create table if not exists k_dec (shop_id bigint unsigned not null, k decimal(10,3) not null, t time(3) not null, dt datetime(6) not null, v int, primary key (shop_id,k,t,dt));
create table if not exists k_date (shop_id bigint unsigned not null, d date not null, ts timestamp(2) not null, y year not null, v int, primary key (shop_id,d,ts,y));
create table if not exists k_bit (shop_id bigint unsigned not null, b bit(64) not null, s set('a','b') not null, v int, primary key (shop_id,b,s));
create table if not exists k_enum (shop_id bigint unsigned not null, e enum('z','a','') not null, k int not null, v int, primary key (shop_id,e,k));
create table if not exists k_lat (shop_id bigint unsigned not null, c char(8) character set latin1 not null, u varchar(9) collate utf8mb4_general_ci not null, b varbinary(9) not null, v int, primary key (shop_id,c,u,b));
create table if not exists k_none (shop_id bigint unsigned not null, v longblob, primary key (shop_id));
create table if not exists k_gen (shop_id bigint unsigned not null, a int not null, g int generated always as (a*2) stored not null, v int, primary key (shop_id,g));
create table if not exists parent (shop_id bigint unsigned not null, id int not null, primary key(shop_id,id));
create table if not exists achild (shop_id bigint unsigned not null, id int not null, p int not null, primary key(shop_id,id), foreign key (shop_id,p) references parent(shop_id,id));
create table if not exists k_desc (shop_id bigint unsigned not null, a int not null, b varchar(20) not null, c bigint unsigned not null, v int, primary key (shop_id, a desc, b, c desc));
