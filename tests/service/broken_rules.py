import sys,time
from dataclasses import replace
from unittest.mock import patch
from tests.service.simulation import simulate, BrokenLawError
from airflow_kafka_offsets.adapters.ledger import sql_ledger as L
from airflow_kafka_offsets.core import ownership as O, window as W, tries as T
from airflow_kafka_offsets import service as S, publishing as P
print("imported",time.process_time(),flush=True); simulate(0); print("zero",time.process_time(),flush=True)
from sqlalchemy import update, select
def change(connection, group_id, window, holds, /, **values):
    connection.execute(update(L.windows).where(L.windows.c.group_id==group_id, L.windows.c.seq==window.seq).values(values))
def step(connection, group_id, seqs, before, **values):
    connection.execute(update(L.windows).where(L.windows.c.group_id==group_id, L.windows.c.seq.in_(seqs)).values(values))
def advance(connection, group, version, **values):
    connection.execute(update(L.groups).where(L.groups.c.name==group).values(version=L.groups.c.version+1, **values))
def no_position(w,p,n):
    return replace(O.abandonment(w,p,n), position=None)
def no_evidence(window, claim, outcome):
    return W.check_commit(window, claim, W.Outcome.SUCCEEDED)
def anybody(window, claim, outcome):
    return W.check_commit(replace(window, holder=claim), claim, outcome)
orig_lose=L._lose
orig_fin=S.WindowService._finish
def fin(self,w): orig_fin(self,w); return True
orig_hold=L._hold
def hold(connection, group_id, helds, claim_id, claim, now):
    with patch.object(L,"_change",change): orig_hold(connection, group_id, helds, claim_id, claim, now)
class NoFacts(O.Abandonment): pass
M={
 "windows changed without compare-and-set": patch.object(L,"_change",change),
 "hold without compare-and-set": patch.object(L,"_hold",hold),
 "finish without compare-and-set": patch.object(L,"_step",step),
 "group without version": patch.object(L,"_advance",advance),
 "abandon leaves the position": patch.object(L,"abandonment",no_position),
 "gap not recorded": patch.object(O.Abandonment,"facts",property(lambda s:{"window":s.window.id})),
 "gap not confirmed": patch.object(L,"check_gap",lambda *a: None),
 "finish ignores the store": patch.object(P.Publisher,"_follow",lambda *a:None),
 "commit without evidence": patch.object(L,"check_commit",no_evidence),
 "anybody commits": patch.object(L,"check_commit",anybody),
 "attempts are never lost": patch.object(L,"_lose",lambda *a:None),
 "a clear continues": patch.object(T.Try,"continues",lambda s,e: True),
 "every finish wins": patch.object(S.WindowService,"_finish",fin),
 "everybody is handed over": patch.object(S.ownership,"is_handed_over",lambda *a,**k: True),
 "not readable is fine": patch.object(S.WindowService,"_check_readable",lambda *a:None),
 "reset with open windows": patch.object(S.resets,"check_no_open_window",lambda *a:None),
 "empty window behind open ones": patch.object(S.ownership,"check_something",lambda *a:None),
}
# a clear keeps its series: also in SQL
only=sys.argv[2:] 
for name,p in M.items():
    if only and not any(o in name for o in only): continue
    t=time.process_time()
    import signal; signal.signal(signal.SIGVTALRM, lambda *a: (_ for _ in ()).throw(KeyboardInterrupt())); signal.setitimer(signal.ITIMER_VIRTUAL, 15)
    with p:
        for s in range(1,int(sys.argv[1])):
            try: simulate(s)
            except KeyboardInterrupt: print("TIMEOUT", name, "seed", s, flush=True); break
            except BrokenLawError as e:
                print("NOTICED",name,"| seed",s,"|",str(e).splitlines()[0][:230], flush=True); break
        else: print("MISSED ",name, round(time.process_time()-t,1), flush=True)
