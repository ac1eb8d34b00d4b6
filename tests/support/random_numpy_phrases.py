"""The expressions, statements and loops that random NumPy programs are made of (`random_numpy_programs.py`)."""

from __future__ import annotations

# Places: ~p an integer of Python, ~i any integer, ~q a float of Python, ~d a float64 of NumPy, ~e a float32, ~f any
# float, ~t a truth value; ~A ~R ~T float64 arrays of 6, 5, 3; ~M of 4 by 5; ~N int64 of 6; ~H int32 of 4; ~U uint8 of
# 5; ~G float32 of 5; ~B bool of 6; ~Z complex128 of 4; ~6 an index of an axis of 6; ~s a slice; ~c a constant.
GRAMMAR = {
    "p": ("k0;k1;k2;~c;LOOP;LOOP;k;2;len(x)", """
(~p + ~p)
(~p - ~p)
(~p * ~p)
(~p) // 3
(~p) % 5
(~p) // -2
(~p) % -3
((~p) & (~p))
((~p) | 3)
((~p) ^ (~p))
((~p) >> 1)
((~p) << ((~p) & 3))
min(~p, ~p)
max(~p, ~p, 2)
abs(~p)
(~p if ~t else ~p)
-(~p)
(~p) ** 2
int(~i) % 9
int(~f)
m.shape[~2]
len(row)
x.size - ~p
first_above(~A, ~f)
"""),
    "i": ("n[~6];h[~4];u[~5];k0;LOOP", """
~p
(~i + ~p)
(~i - ~p)
n[~6] * ~p
n[~6] // (h[~4] % 3 + 1)
int(u[~5]) + ~p
np.argmax(~A)
(~R).argmin()
~N.sum()
np.int64(~p)
h[~4] % 5
(~B).sum()
np.count_nonzero(~A > ~f)
~N[~6]
n.max() - n.min()
"""),
    "q": ("0.5;-1.25;2.0;s;q0;q1", """
(~q + ~q)
(~q * 0.5)
~q - ~p
(~p) / 4
float(~f)
(~q if ~t else ~q)
min(~q, ~q)
abs(~q)
-(~q)
float(w0)
float(~i)
math.floor(~q) * 0.5
"""),
    "d": ("x[~6];y[~6];m[~4, ~5];d0;d1;a[~6];row[~5];part[~3]", """
(~d + ~f)
(~d - ~d)
~d * 0.5
(~d + ~q)
(~d) / 4
~d + ~p
-(~d)
abs(~d)
np.float64(~f)
np.minimum(~d, ~q)
np.maximum(~d, ~d)
np.where(~t, ~d, ~d)
np.clip(~d, -2, 3)
~A.sum()
np.sum(~R)
~A.max()
~R.min()
~T.mean()
m[:, ~5].sum()
m[~4].max()
np.floor(~d)
np.sign(~d)
~d % 2.0
~d // 0.5
np.dot(~A, ~A) * 0.125
~R @ ~R * 0.125
m.T[~5, ~4]
m[~4][~5]
m.sum(axis=0)[~5]
m.sum(axis=1)[~4]
(~d if ~t else ~d)
z[~4].real + d0
z.imag[~4]
abs(z[~4].real)
x[n[~6] % 6]
x[:~p].sum()
x[~p:].sum()
m[~4, :~p].sum()
np.sort(~A)[~6]
np.cumsum(~R)[~5]
~A[~s].sum()
np.outer(~T, ~T)[~3, ~3]
np.abs(~A - ~A).max()
m[~s, ~5].sum()
x[x > ~f].sum()
y[b].sum()
np.prod(~T) * 0.125
OUTSIDE[~6]
np.median(~T)
x.reshape(2, 3)[~2, ~3]
m.ravel()[~c]
"""),
    "e": ("g[~5];e0", """
~e * 0.5
(~e + ~p)
(~e - ~e)
np.float32(~f)
~G.sum()
~G.max()
-(~e)
abs(~e)
(~e if ~t else ~e)
"""),
    "f": ("~d;~d;~q;~e", "~d\n~d\n~d\n~q\n~e\nclipped(~d)\nclipped(~q, -1)\n"),
    "t": ("b0;~p > 2;b[~6];~d > ~d", """
(~p < ~p)
(~i == ~p)
(~i != ~i)
(~f < ~f)
(~d >= ~f)
(~p < ~i <= ~p)
-1 < ~d < 1.5 < ~q
(~t and ~t)
(~t or ~t)
(not ~t)
(~t and (~p) % 3 == 1 or ~t)
(0 <= k2 < 6 and x[k2] > ~f)
(k2 < 0 or k2 > 5 or x[k2] > ~f)
(~A > ~f).any()
np.all(~R < ~f)
bool(~p)
np.isnan(~d)
u[~5] > ~p
b.any() == ~t
w0 > ~p
"""),
    "A": ("x;y;a;OUTSIDE", """
x[::-1]
~A + ~A
~A * 0.5
~A - ~d
~q + ~A
np.where(~B, ~A, ~A)
np.where(~A > ~f, ~A, ~q)
np.minimum(~A, ~A)
np.maximum(~A, ~d)
np.abs(~A)
~A.copy()
~N * 0.5
~N + ~A
np.zeros(6)
np.arange(6) * 0.5
np.cumsum(~A) * 0.5
np.sort(~A)
np.clip(~A, -2, 3)
np.full(6, ~q)
np.concatenate((~T, ~T))
shifted(~A.copy(), ~p)
np.array([~d, 1.0, ~q, 2, ~p, -1.5])
np.roll(~A, ~c)
-(~A)
~A * ~B
~A[::-1].copy()
m.reshape(-1)[3:9]
x.reshape(3, 2).T.reshape(6)
np.outer(~T, np.ones(2)).ravel()
np.empty_like(~A) * 0
"""),
    "R": ("row;m[~4];m[~4, :]", """
m[::-1][~4]
m.T[:, ~4]
~R + ~R
~R * 0.5
~R - ~q
m.sum(axis=0)
m.max(axis=0)
~R[::-1]
g * ~d
~G.astype(np.float64)
np.maximum(~R, ~d)
~M[~4]
x[:5]
y[1:]
u * 0.5
m[~4].copy()
np.ones(4) @ m
"""),
    "T": ("part;x[:3];y[::2]", """
x[1:4]
x[::-2]
m[1:, ~5]
a[3:]
m[~4, 1:4]
~T + ~T
~T * ~q
~T.copy()
x.reshape(2, 3)[~2]
x.reshape(3, 2)[:, ~2]
x[[0, 2, ~6]]
halves(~A)[~2]
"""),
    "M": ("m;m;grid", """
~M + ~M
~M * 0.5
~M - ~R
m[::-1]
m.T.T
m - m.max(axis=1, keepdims=True)
np.where(~M > ~f, ~M, ~q)
np.outer(h, ~R)
np.zeros((4, 5))
~M.copy()
np.zeros_like(m) + ~d
m * m[:, :1]
(m @ m.T) @ m * 0.125
"""),
    "N": ("n", """
n + ~p
n * 2
n // 3
n % 4
n[::-1]
~N - ~N
np.arange(6)
np.argsort(~A, kind="stable")
np.cumsum(~N) % 7
np.where(~B, ~N, ~N)
n & 3
(~A).astype(np.int64)
np.abs(~N)
h[~4] + n
(~B).astype(np.int64)
np.minimum(n, ~p)
"""),
    "H": ("h", "h + 1\nh[::-1]\nh * h\nh // 2\nh % 3\nh - ~c\n-h\nnp.maximum(h, 0)\n~H + ~H\nh.copy()\n"),
    "U": ("u", "u + 1\nu * 3\nu[::-1]\nu // 2\n~U + ~U\nu - ~U\nu & 15\nu ^ ~U\n~U.copy()\nu >> 1\n"),
    "G": ("g", "g * 0.5\ng + ~q\ng - ~G\n~G * ~p\ng[::-1]\nnp.abs(~G)\n~R.astype(np.float32)\n~G + ~e\n-g\n"),
    "B": ("b", "~A > ~f\n~A < ~A\n~B & ~B\n~B | ~B\n~(~B)\nn % 2 == 0\nb != ~B\nnp.logical_not(~B)\nnp.isnan(~A)\n"),
    "Z": ("z", "z * 0.5\nz + ~q\nz * 1j\nnp.conj(z)\nz - ~Z\nz[::-1]\nh * 1j + z\n"),
    "s": (":;1:;:-1;::2;::-1;1:3", ":~p\n~p:\n~c:~c\n~p:~p\n1::2\n-2:\n:k0 + 1\n~p::-1\n"),
}  # fmt: skip
STATEMENTS = """
K = int(~p) % 7
K = ~p % 5 - 2
K += ~c
k0, k1 = k1, (k0 + 1) % 9
k2 = int(~i) % 6
Q = np.clip(~f, -9.0, 9.0).item()
Q = float(~f)
Q *= 0.5
D = ~d
D = ~d
D += ~f
D -= ~q
D = np.float64(~f)
d0, d1 = d1, d0 * 0.5
d0 = d1 = ~d
e0 = ~e
e0 += ~p
b0 = bool(~t)
b0 = not b0
w0 = ~p
w0 = ~q
w0 += 1
w0 += ~d
w0 = w0 * 0.5
x[~6] = ~f
y[~6] += ~f
x[~6] -= ~p
x[~s] = ~q
x[~s] += ~d
x[~s] *= 0.5
x[1:] = x[:-1]
x[:-1] += x[1:]
x[:] = x[::-1]
y[:] = ~A
x[1:5] = x[2:6] - x[:4]
x[::2] += ~T
y[1::2] = y[::2] * 0.5
x[~6], x[~6] = x[~6], x[~6]
x[0], y[1] = y[1], x[0]
m[~4, ~5] = ~f
m[~4, ~5] += ~f
m[~4] = ~R
m[~4] += ~R
m[:, ~5] = ~q
m[:, ~5] += m[:, 0]
m[1:, 1:] = m[:-1, :-1]
m[1:-1, 1:-1] = 0.25 * (m[:-2, 1:-1] + m[2:, 1:-1])
m[~4, ~s] = ~q
m[~s, ~5] += 1
m[~4, :~p] += ~q
m[~s] = ~R
m += ~R
m *= 0.5
m[:] = ~M
m[m > ~f] = ~q
m[~s, ~s] -= 0.5
m[~4], m[~4] = m[~4].copy(), m[~4].copy()
m.T[~5, ~4] = ~f
m.T[~5] = m[:, 1]
m.T[1:3] += 1
m.reshape(-1)[~c] = ~f
m.reshape(5, 4)[~5] += ~q
x.reshape(3, 2)[~3] = ~q
x[x < ~f] = ~q
x[~B] += 1
y[b] = ~q
x[~B] = 0
x += ~A
y *= 0.5
y -= ~d
n[~6] = ~i
n[~6] += ~p
n[~6] = ~d
n[~s] = ~p
n += 1
n[:] = ~N
n //= 2
n[n > 3] -= 2
n[:3], n[3:] = n[3:].copy(), n[:3].copy()
h[~4] = ~p
h[~4] += ~i
h += ~H
h[:] = ~H
h *= 2
u[~5] = ~i
u[~5] = ~p & 63
u[~5] += 7
u += ~U
u[:] = ~U
u[~s] //= 2
g[~5] = ~f
g[~5] += ~e
g += ~G
g *= ~q
g[:] = ~G
b[~6] = ~t
b[:] = ~B
b &= ~B
b[~6] = ~i
z[~4] = ~f
z[~4] += ~d * 1j
z *= 0.5
z[:] = ~Z
z.real[~4] = ~f
z.imag += ~q
z.real = ~q
a = ~A
a = a + ~A
a = x
a = y
a = a.copy()
a = x[::-1]
a += 1.0
a[~6] = ~f
a[~s] *= 2
a = np.zeros(6)
row = m[~4]
row = row.copy()
row = ~R
row += 1
row[~5] = ~f
row[~s] -= ~q
part = ~T
part = x[1:4]
part = part[::-1]
part += ~T
part[~3] = ~f
part *= 2
v = x[1:5]; v[1:3] += ~q; v[0] = ~f
v = m[1:3, ::2]; t = v.T; t[~3, ~2] = ~f; v[0] += 1
v = x.reshape(2, 3); v[1] = v[0]; v.T[0] += ~q
v = m.reshape(2, 10); v[:, 3:5] = ~q
v = x; v += 1; v = v * 2; v[0] = 5; d0 = v[0]
v = m[~4]; v = v[1:]; v[~4] = ~f
v = x[::-1][1:4]; v += y[:3]
v = m[:, ~5]; v[::2] = ~q; part[0] = v[1]
shifted(x, ~p)
shifted(a, ~p)
shifted(m[~4], ~p)
swapped(x, ~6, ~6)
first, second = halves(x); second += first
np.add(x, ~A, out=x)
np.maximum(m, ~q, out=m)
np.add.at(x, n % 6, 1.0)
np.copyto(y, ~A)
x.fill(~q)
x.sort()
np.fill_diagonal(m, ~q)
grid = ~M
grid = m
grid = grid + 1
grid[~4, ~5] = ~f
grid[~s] *= 0.5
c0 = ~d if ~t else ~q; d0 = d0 + c0
"""
LOOPS = """
for J in range(~p):
for J in range(6):
for J in range(1, 5):
for J in range(4):
for J in range(5, -1, -1):
for J in range(~p, ~p):
for J in range(0, 6, 2):
for J in range(~c, ~p, ~c or 1):
for J in range(len(x)):
for J in range(m.shape[0]):
for J in range(k % 5):
for J in range(LOOP, 5):
for J in range(LOOP + 1):
for J, V in enumerate(x):
for J, V in enumerate(~A):
for J, V in enumerate(y[1:], 1):
for J, V in zip(n, y):
for J, (V, F2) in enumerate(zip(x, y)):
for J in reversed(range(5)):
for J in range(m.shape[0] - 1, 0, -1):
for V in x:
for V in ~A:
for V in row:
for V in reversed(x):
for V, F2 in zip(x, y[::-1]):
for row in m:
for row in m.T[:, :].T:
for J, row in enumerate(m):
for J in n:
for J in h:
for V in m[:, ~5]:
for k2 in range(5):
"""
