"""Computes reference values of the tail-miss probability by the printed formula in exact decimal arithmetic.

The doubles are taken as exact. Run `python3 peers/tail_miss_golden.py`. Its output is in
crates/core/src/theory/tail_miss.rs.
"""

from decimal import Decimal as D, getcontext
getcontext().prec = 100
rows=[]
for mu,tau,n in [(0.64,6.3e-5,2),(0.64,6.3e-5,1024),(0.64,6.3e-5,131072),(0.5,1e-12,10**9),(0.5,1e-12,2),(1e-12,1e-15,2),
   (1e-12,5e-13,10**9),(0.999999999999,1e-12,2),(0.999999999999,1e-3,1000),(0.8,0.0008,7),(0.2,1e-9,10**9),(1e-9,1e-12,3),(0.3,0.29999999,5),(0.9999999,1e-8,10**8),(1.0-2**-53,1e-12,10**9)]:
    M,T=D(mu),D(tau)
    w=(1-T)**n-(M-T)**n-(1-M)**n
    rows.append((mu,tau,n,float(w)))
print("// Written by peers/tail_miss_golden.py: Python's decimal module at 100 digits. (mu, tau, n, tail miss)")
print("const GOLDEN: [(f64, f64, u64, f64); %d] = ["%len(rows))
for r in rows: print("    (%r, %r, %s, %r),"%(r[0],r[1],f"{r[2]:_}",r[3]))
print("];")
