// Basic helpers of generated kernels: element types, loads and stores, selection, reductions across
// lanes.
//
// This file is a template, not compiled as it is. The writer (codegen/cpp/prelude.py) copies
// "common" once and each section that a kernel needs once per type. It replaces these names: V is
// the vector type (or the scalar type), E its element, I and U the signed and unsigned integer
// vectors of the same width, L the number of lanes. `needs:` names other sections for the same
// type. No header is included: this reduces the compiler's start-up time to a third.

//@ common
typedef bool b8;
typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long i64;
typedef unsigned long u64;
typedef float f32;
typedef double f64;
#ifdef __clang__
#define SHUFFLE(v, T, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#define SHUFFLE2(v, w, T, ...) __builtin_shufflevector(v, w, __VA_ARGS__)
#else
#define SHUFFLE(v, T, ...) __builtin_shuffle(v, (T){__VA_ARGS__})
#define SHUFFLE2(v, w, T, ...) __builtin_shuffle(v, w, (T){__VA_ARGS__})
#endif
// Loops over lanes are unrolled completely.
#define EACH _Pragma("GCC unroll 64")
#define FN static inline __attribute__((always_inline))
template <class V, class E> FN V load(const E *p) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class V, int N, class E> FN V load_part(const E *p) { V v = {}; __builtin_memcpy(&v, p, N * sizeof(E)); return v; }
template <class V, class E> FN void store(E *p, V v) { __builtin_memcpy(p, &v, sizeof v); }
template <int N, class E, class V> FN void store_part(E *p, V v) { __builtin_memcpy(p, &v, N * sizeof(E)); }
template <class V, int N, class E> FN V load_strided(const E *p, i64 s) {
#ifndef __clang__
  constexpr int L = sizeof(V) / sizeof(E);
  if (N == L && L > 4 && s >= 2 && s <= 4) {
    // Selects lanes from whole vectors; the last vector ends at the last element needed.
    V v = load<V>(p);
    EACH for (int k = 1; k < s; k++) {
      const int start = k < s - 1 ? k * L : (L - 1) * (s - 1);
      __typeof__((V){} == (V){}) lane;
      EACH for (int l = 0; l < L; l++) lane[l] = l * s < k * L ? (k == 1 ? l * s : l) : l * s < (k + 1) * L ? L + l * s - start : l;
      v = __builtin_shuffle(v, load<V>(p + start), lane);
    }
    return v;
  }
  if (sizeof(E) < 4) {
    // Goes through memory: inserting a lane into a long vector takes several instructions.
    E e[L] = {}; EACH for (int l = 0; l < N; l++) e[l] = p[l * s]; return load<V>(e);
  }
#endif
  V v = {}; EACH for (int l = 0; l < N; l++) v[l] = p[l * s]; return v;
}
template <int N, class E, class V> FN void store_strided(E *p, i64 s, V v) { EACH for (int l = 0; l < N; l++) p[l * s] = v[l]; }
template <int N, class E, class V, class O> FN void store_at(E *p, O o, V v) { EACH for (int l = 0; l < N; l++) p[o[l]] = v[l]; }
template <class V, class E> FN V splat(E x) { return x - (V){}; }
template <class T, class F> FN T as(F x) { T t; static_assert(sizeof t == sizeof x, ""); __builtin_memcpy(&t, &x, sizeof t); return t; }

//@ parts
// Partial vectors whose length is known only at run time: at least 1 lane.
#if defined(__AVX512VL__) && defined(__AVX512BW__) && !defined(__clang__)
#define BY_MASK(DO) \
  const u64 m = ~(u64)0 >> (64 - n); \
  DO(ups512, 4, 64, f32) DO(ups256, 4, 32, f32) DO(upd512, 8, 64, f64) DO(upd256, 8, 32, f64) \
  DO(dquhi512, 2, 64, i16) DO(dquhi256, 2, 32, i16) DO(dquhi128, 2, 16, i16) \
  DO(dquqi512, 1, 64, char) DO(dquqi256, 1, 32, char) DO(dquqi128, 1, 16, char)
#define LOAD_PART(name, one, all, type) \
  if constexpr (sizeof(F) == one && sizeof(T) == all) { \
    typedef type W __attribute__((vector_size(all))); \
    return (T)__builtin_ia32_load##name##_mask((const type *)p, W{}, m); \
  } else
#define STORE_PART(name, one, all, type) \
  if constexpr (sizeof(F) == one && sizeof(T) == all) { \
    typedef type W __attribute__((vector_size(all))); \
    __builtin_ia32_store##name##_mask((type *)p, (W)v, m); \
  } else
#else
#define BY_MASK(DO)
#endif
template <class T, class F> FN T load_part(const F *p, i64 n) {
  constexpr int N = sizeof(T) / sizeof(F);
  BY_MASK(LOAD_PART) { F e[N]; for (int l = 0; l < N; l++) e[l] = l < n ? p[l] : F(0); return load<T>(e); }
}
template <class F, class T> FN void store_part(F *p, T v, i64 n) {
  constexpr int N = sizeof(T) / sizeof(F);
  BY_MASK(STORE_PART) { F e[N]; store(e, v); for (int l = 0; l < N; l++) if (l < n) p[l] = e[l]; }
}
template <class T, class F> FN T load_strided(const F *p, i64 s, i64 n) {
  constexpr int N = sizeof(T) / sizeof(F);
  F e[N]; for (int l = 0; l < N; l++) e[l] = l < n ? p[l * s] : F(0); return load<T>(e);
}
template <class F, class T> FN void store_strided(F *p, i64 s, T v, i64 n) {
  constexpr int N = sizeof(T) / sizeof(F);
  F e[N]; store(e, v); for (int l = 0; l < N; l++) if (l < n) p[l * s] = e[l];
}
template <class F, class T, class O> FN void store_at(F *p, O o, T v, i64 n) {
  constexpr int N = sizeof(T) / sizeof(F);
  EACH for (int l = 0; l < N; l++) if (l < n) p[o[l]] = v[l];
}

//@ convert
// __builtin_convertvector, as one instruction where GCC 12 emits ten to sixty.
typedef char q16 __attribute__((vector_size(16)));
typedef i16 w8 __attribute__((vector_size(16)));
typedef i16 w16 __attribute__((vector_size(32)));
typedef i32 d4 __attribute__((vector_size(16)));
typedef i32 d8 __attribute__((vector_size(32)));
typedef i32 d16 __attribute__((vector_size(64)));
typedef long long l4 __attribute__((vector_size(32)));
typedef long long l8 __attribute__((vector_size(64)));
typedef f32 s4 __attribute__((vector_size(16)));
typedef f32 s8 __attribute__((vector_size(32)));
typedef f64 r4 __attribute__((vector_size(32)));
typedef f64 r8 __attribute__((vector_size(64)));
// Returns the first bytes of x, in a register that may be wider.
template <class T, class F> FN T low(F x) { T t = {}; __builtin_memcpy(&t, &x, sizeof t < sizeof x ? sizeof t : sizeof x); return t; }
template <class T, class F> FN T convert(F x) {
  typedef __typeof__(x[0]) from;
  typedef __typeof__(T{}[0]) to;
  constexpr int n = sizeof(F) / sizeof(from), a = sizeof(from), b = sizeof(to);
  constexpr bool wholes = (from)0.5 == 0 && (to)0.5 == 0, plus = wholes && (from)-1 > 0, floats = (from)0.5 != 0 && (to)0.5 != 0;
#if defined(__AVX512DQ__) && !defined(__clang__)
  if constexpr (wholes && n == 16 && a == 1 && b == 4) return plus ? (T)__builtin_ia32_pmovzxbd512_mask(low<q16>(x), (d16){}, -1) : (T)__builtin_ia32_pmovsxbd512_mask(low<q16>(x), (d16){}, -1);
  else if constexpr (wholes && n == 16 && a == 2 && b == 4) return plus ? (T)__builtin_ia32_pmovzxwd512_mask(low<w16>(x), (d16){}, -1) : (T)__builtin_ia32_pmovsxwd512_mask(low<w16>(x), (d16){}, -1);
  else if constexpr (wholes && n == 16 && a == 4 && b == 1) return (T)__builtin_ia32_pmovdb512_mask(low<d16>(x), (q16){}, -1);
  else if constexpr (wholes && n == 16 && a == 4 && b == 2) return (T)__builtin_ia32_pmovdw512_mask(low<d16>(x), (w16){}, -1);
  else if constexpr (wholes && n == 8 && a == 1 && b == 8) return plus ? (T)__builtin_ia32_pmovzxbq512_mask(low<q16>(x), (l8){}, -1) : (T)__builtin_ia32_pmovsxbq512_mask(low<q16>(x), (l8){}, -1);
  else if constexpr (wholes && n == 8 && a == 2 && b == 8) return plus ? (T)__builtin_ia32_pmovzxwq512_mask(low<w8>(x), (l8){}, -1) : (T)__builtin_ia32_pmovsxwq512_mask(low<w8>(x), (l8){}, -1);
  else if constexpr (wholes && n == 8 && a == 4 && b == 8) return (T)__builtin_ia32_pmovsxdq512_mask(low<d8>(x), (l8){}, -1);
  else if constexpr (wholes && n == 8 && a == 8 && b == 4) return (T)__builtin_ia32_pmovqd512_mask(low<l8>(x), (d8){}, -1);
  else if constexpr (wholes && n == 8 && a == 8 && b == 2) return (T)__builtin_ia32_pmovqw512_mask(low<l8>(x), (w8){}, -1);
  else if constexpr (wholes && n == 8 && a == 8 && b == 1) return low<T>(__builtin_ia32_pmovqb512_mask(low<l8>(x), (q16){}, -1));
  else if constexpr (floats && n == 8 && a == 4) return (T)__builtin_ia32_cvtps2pd512_mask(low<s8>(x), (r8){}, -1, 4);
  else if constexpr (n == 8 && a == 4 && b == 8 && (from)0.5 == 0 && (to)0.5 != 0) return (T)__builtin_ia32_cvtdq2pd512_mask(low<d8>(x), (r8){}, -1);
  else if constexpr (n == 8 && a == 4 && b == 8 && (from)0.5 != 0 && (to)0.5 == 0) return (T)__builtin_ia32_cvttps2qq512_mask(low<s8>(x), (l8){}, -1, 4);
  else
#endif
#if defined(__AVX2__) && !defined(__clang__)
  if constexpr (wholes && n == 8 && a == 1 && b == 4) return plus ? (T)__builtin_ia32_pmovzxbd256(low<q16>(x)) : (T)__builtin_ia32_pmovsxbd256(low<q16>(x));
  else if constexpr (wholes && n == 8 && a == 2 && b == 4) return plus ? (T)__builtin_ia32_pmovzxwd256(low<w8>(x)) : (T)__builtin_ia32_pmovsxwd256(low<w8>(x));
  else if constexpr (wholes && n == 4 && a == 4 && b == 8) return (T)__builtin_ia32_pmovsxdq256(low<d4>(x));
  else if constexpr (floats && n == 4 && a == 4) return (T)__builtin_ia32_cvtps2pd256(low<s4>(x));
  else if constexpr (wholes && n == 8 && a == 4 && b < 4) {
    // After truncation, both operands are in the range of the saturating pack.
    const d8 m = low<d8>(x) & (b == 2 ? 0xffff : 0xff);
    const w8 w = (w8)__builtin_ia32_packusdw128(low<d4>(m), low<d4>(__builtin_shuffle(m, (d8){4, 5, 6, 7, 0, 1, 2, 3})));
    if constexpr (b == 2) return (T)w;
    else return low<T>(__builtin_ia32_packuswb128(w, w));
  } else
#endif
    return __builtin_convertvector(x, T);
}

//@ whole
// Converts a float to an int. The asm keeps the compiler from using the float without its fraction
// instead: eager kernels give ints for NaN and infinities.
template <class T, class F> static inline T whole(F x) {
  T n = (T)x;
  asm("" : "+r"(n));
  return n;
}

//@ threads
extern "C" int omp_get_thread_num(void), omp_get_num_threads(void);

//@ masked f32 i32 needs: convert
template <int N, class M> FN V load_masked(const E *p, M m, V) {
#if defined(__AVX512DQ__) && L == 16
  typedef f32 W __attribute__((vector_size(64)));
  return (V)__builtin_ia32_loadups512_mask((const f32 *)p, W{}, __builtin_ia32_cvtd2mask512((I)m) & (1 << N) - 1);
#elif defined(__AVX2__) && L == 8
  typedef f32 W __attribute__((vector_size(32)));
  I there;
  EACH for (int l = 0; l < L; l++) there[l] = l < N ? -1 : 0;
  return (V)__builtin_ia32_maskloadps256((const W *)p, convert<I>(m) & there);
#else
  V v = {}; EACH for (int l = 0; l < N; l++) if (m[l]) v[l] = p[l]; return v;
#endif
}

//@ masked u16 i16 needs: convert
template <int N, class M> FN V load_masked(const E *p, M m, V) {
#if defined(__AVX512BW__) && defined(__AVX512VL__) && L == 16 && !defined(__clang__)
  return (V)__builtin_ia32_loaddquhi256_mask((const short *)p, w16{}, __builtin_ia32_cvtd2mask512(convert<d16>(m)) & (1 << N) - 1);
#else
  V v = {}; EACH for (int l = 0; l < N; l++) if (m[l]) v[l] = p[l]; return v;
#endif
}

//@ masked f64 i64 needs: convert
template <int N, class M> FN V load_masked(const E *p, M m, V) {
#if defined(__AVX512DQ__) && L == 8 && !defined(__clang__)
  return (V)__builtin_ia32_loadupd512_mask((const f64 *)p, r8{}, __builtin_ia32_cvtq2mask512(convert<l8>(m)) & (1 << N) - 1);
#else
  V v = {}; EACH for (int l = 0; l < N; l++) if (m[l]) v[l] = p[l]; return v;
#endif
}

//@ masked
template <int N, class M> FN V load_masked(const E *p, M m, V) { V v = {}; EACH for (int l = 0; l < N; l++) if (m[l]) v[l] = p[l]; return v; }

//@ masked_part
template <class M> FN V load_masked(const E *p, M m, V, i64 n) { V v = {}; EACH for (int l = 0; l < L; l++) if (l < n && m[l]) v[l] = p[l]; return v; }

//@ gather_part
template <class O> FN V gather(const E *p, O o, V, i64 n) { V v = {}; EACH for (int l = 0; l < L; l++) if (l < n) v[l] = p[o[l]]; return v; }
template <class M, class O> FN V gather_masked(const E *p, O o, M m, V, i64 n) { V v = {}; EACH for (int l = 0; l < L; l++) if (l < n && m[l]) v[l] = p[o[l]]; return v; }

//@ gather needs: convert
// Lanes from N on are 0.
template <int N, class O> FN V gather(const E *p, O o, V) {
  typedef __typeof__(o[0]) place;
#if defined(__AVX512DQ__) && !defined(__clang__)
  constexpr int known = (int)((1u << N % 32) - 1), all = N == L ? -1 : known;
  if constexpr (L == 16 && sizeof(E) == 4 && sizeof(place) == 4) return (V)__builtin_ia32_gathersiv16si(d16{}, p, (d16)o, all, 4);
  else if constexpr (L == 8 && sizeof(E) == 4 && sizeof(place) == 8) return (V)__builtin_ia32_gatherdiv16si(d8{}, p, (l8)o, all, 4);
  else if constexpr (L == 8 && sizeof(E) == 8 && sizeof(place) == 8) return (V)__builtin_ia32_gatherdiv8di(l8{}, p, (l8)o, all, 8);
  else
#endif
  {
    place a[L]; E b[L] = {};
    __builtin_memcpy(a, &o, sizeof a);
    EACH for (int l = 0; l < N; l++) b[l] = p[a[l]];
    return load<V>(b);
  }
}
// Masked lanes read p[0], which always exists.
template <int N, class M, class O> FN V gather_masked(const E *p, O o, M m, V z) {
#if defined(__AVX512DQ__) && !defined(__clang__)
  if constexpr (L == 8 && sizeof(o[0]) == 8 && sizeof(m[0]) == 8) {
    const unsigned char some = __builtin_ia32_cvtq2mask512((l8)m) & (1 << N) - 1;
    if constexpr (sizeof(E) == 4) return (V)__builtin_ia32_gatherdiv16si(d8{}, p, (l8)o, some, 4);
    if constexpr (sizeof(E) == 8) return (V)__builtin_ia32_gatherdiv8di(l8{}, p, (l8)o, some, 8);
  }
#endif
  return (V)((I)gather<N>(p, convert<O>(m) & o, z) & convert<I>(m));
}

//@ min f32
// Returns NaN if either is NaN. Of equal zeros it returns the second, like the instructions and so
// like eager mode. Not `a != a ? a : m`: GCC 12 folds a comparison into both sides of its
// selection, so each further one in a sequence, as in the window of a pooling, doubles its time.
FN V fl_min(V a, V b) {
#if defined(__AVX512F__) && L == 16 && !defined(__clang__)
  return (V)__builtin_ia32_minps512_mask(a, b, a, __builtin_ia32_cmpps512_mask(a, a, 7, -1, 4), 4);
#elif defined(__AVX2__) && L == 8
  return (V)__builtin_ia32_blendvps256(__builtin_ia32_minps256(a, b), a, __builtin_ia32_cmpps256(a, a, 3));
#elif L > 1
  const I other = a != a;
  return as<V>((as<I>(a) & other) | (as<I>(a < b ? a : b) & ~other));
#else
  const V m = a < b ? a : b;
  return a != a ? a : m;
#endif
}

//@ min f64
FN V fl_min(V a, V b) {
#if defined(__AVX512F__) && L == 8 && !defined(__clang__)
  return (V)__builtin_ia32_minpd512_mask(a, b, a, __builtin_ia32_cmppd512_mask(a, a, 7, -1, 4), 4);
#elif defined(__AVX2__) && L == 4
  return (V)__builtin_ia32_blendvpd256(__builtin_ia32_minpd256(a, b), a, __builtin_ia32_cmppd256(a, a, 3));
#elif L > 1
  const I other = a != a;
  return as<V>((as<I>(a) & other) | (as<I>(a < b ? a : b) & ~other));
#else
  const V m = a < b ? a : b;
  return a != a ? a : m;
#endif
}

//@ min
FN V fl_min(V a, V b) { return (a < b) | (a != a) ? a : b; }

//@ max f32
// As for min.
FN V fl_max(V a, V b) {
#if defined(__AVX512F__) && L == 16 && !defined(__clang__)
  return (V)__builtin_ia32_maxps512_mask(a, b, a, __builtin_ia32_cmpps512_mask(a, a, 7, -1, 4), 4);
#elif defined(__AVX2__) && L == 8
  return (V)__builtin_ia32_blendvps256(__builtin_ia32_maxps256(a, b), a, __builtin_ia32_cmpps256(a, a, 3));
#elif L > 1
  const I other = a != a;
  return as<V>((as<I>(a) & other) | (as<I>(a > b ? a : b) & ~other));
#else
  const V m = a > b ? a : b;
  return a != a ? a : m;
#endif
}

//@ max f64
FN V fl_max(V a, V b) {
#if defined(__AVX512F__) && L == 8 && !defined(__clang__)
  return (V)__builtin_ia32_maxpd512_mask(a, b, a, __builtin_ia32_cmppd512_mask(a, a, 7, -1, 4), 4);
#elif defined(__AVX2__) && L == 4
  return (V)__builtin_ia32_blendvpd256(__builtin_ia32_maxpd256(a, b), a, __builtin_ia32_cmppd256(a, a, 3));
#elif L > 1
  const I other = a != a;
  return as<V>((as<I>(a) & other) | (as<I>(a > b ? a : b) & ~other));
#else
  const V m = a > b ? a : b;
  return a != a ? a : m;
#endif
}

//@ max
FN V fl_max(V a, V b) { return (a > b) | (a != a) ? a : b; }

//@ abs f32 f64
FN V fl_abs(V a) { return as<V>(as<I>(a) & ~as<I>(-(V){})); }

//@ abs
FN V fl_abs(V a) { return a < 0 ? -a : a; }

//@ sign
FN V fl_sign(V a) { return a > 0 ? (V){} + 1 : a < 0 ? (V){} - 1 : (V){}; }

//@ copysign
FN V fl_copysign(V a, V b) { const I s = as<I>(-(V){}); return as<V>((as<I>(a) & ~s) | (as<I>(b) & s)); }

//@ signbit
FN auto fl_signbit(V a) { return as<I>(a) < 0; }

//@ isinf f32
FN auto fl_isinf(V a) { return (as<I>(a) & 0x7fffffff) == 0x7f800000; }

//@ isinf f64
FN auto fl_isinf(V a) { return (as<I>(a) & 0x7fffffffffffffff) == 0x7ff0000000000000; }

//@ floordiv
// Lanes past the end of a row hold 0.
FN V fl_floordiv(V a, V b) {
  const V d = b == 0 ? (V){} + 1 : b, q = a / d, r = a - q * d;
  return q - ((r != 0) & ((r < 0) != (d < 0)) ? (V){} + 1 : (V){});
}

//@ truncdiv
FN V fl_truncdiv(V a, V b) { return a / (b == 0 ? (V){} + 1 : b); }

//@ mod
FN V fl_mod(V a, V b) {
  const V d = b == 0 ? (V){} + 1 : b, r = a % d;
  return (r != 0) & ((r < 0) != (d < 0)) ? r + d : r;
}

//@ fmod
FN V fl_fmod(V a, V b) { return a % (b == 0 ? (V){} + 1 : b); }

//@ fma f32
FN V fl_fma(V a, V b, V c) {
#if defined(__AVX512F__) && L == 16
  return (V)__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) && L == 8
  return (V)__builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__FMA__) && L == 4
  return (V)__builtin_ia32_vfmaddps(a, b, c);
#else
  V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_fmaf(a[l], b[l], c[l]); return r;
#endif
}

//@ sqrt f32
FN V fl_sqrt(V a) {
#if defined(__AVX512F__) && L == 16
  return (V)__builtin_ia32_sqrtps512_mask(a, a, -1, 4);
#elif defined(__AVX__) && L == 8
  return (V)__builtin_ia32_sqrtps256(a);
#else
  V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_sqrtf(a[l]); return r;
#endif
}

//@ sqrt f64
FN V fl_sqrt(V a) {
#if defined(__AVX512F__) && L == 8
  return (V)__builtin_ia32_sqrtpd512_mask(a, a, -1, 4);
#elif defined(__AVX__) && L == 4
  return (V)__builtin_ia32_sqrtpd256(a);
#else
  V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_sqrt(a[l]); return r;
#endif
}

//@ rint f32
// mode: 0 to nearest even, 1 down, 2 up, 3 toward zero
template <int mode> FN V fl_rint(V a) {
#if defined(__AVX512F__) && L == 16
  return (V)__builtin_ia32_rndscaleps_mask(a, mode | 8, a, -1, 4);
#elif defined(__AVX__) && L == 8
  return (V)__builtin_ia32_roundps256(a, mode | 8);
#else
  V r;
  EACH for (int l = 0; l < L; l++)
    r[l] = mode == 0 ? __builtin_rintf(a[l]) : mode == 1 ? __builtin_floorf(a[l]) : mode == 2 ? __builtin_ceilf(a[l]) : __builtin_truncf(a[l]);
  return r;
#endif
}

//@ rint f64
template <int mode> FN V fl_rint(V a) {
#if defined(__AVX512F__) && L == 8
  return (V)__builtin_ia32_rndscalepd_mask(a, mode | 8, a, -1, 4);
#elif defined(__AVX__) && L == 4
  return (V)__builtin_ia32_roundpd256(a, mode | 8);
#else
  V r;
  EACH for (int l = 0; l < L; l++)
    r[l] = mode == 0 ? __builtin_rint(a[l]) : mode == 1 ? __builtin_floor(a[l]) : mode == 2 ? __builtin_ceil(a[l]) : __builtin_trunc(a[l]);
  return r;
#endif
}

//@ from_bf16 needs: convert
// V: f32 lanes, H: 16-bit lanes
FN V fl_from_bf16(H h) { return as<V>(convert<U>(h) << 16); }

//@ to_bf16 needs: convert
FN H fl_to_bf16(V a) {
  const U u = as<U>(a);
  const U r = a != a ? (U){} + 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return convert<H>(r);
}

//@ from_f16
FN V fl_from_f16(H h) {
#if defined(__AVX512F__) && L == 16
  typedef short h16 __attribute__((vector_size(32)));
  return (V)__builtin_ia32_vcvtph2ps512_mask((h16)h, (V){}, -1, 4);
#elif defined(__F16C__) && L == 8
  typedef short h8 __attribute__((vector_size(16)));
  return (V)__builtin_ia32_vcvtph2ps256((h8)h);
#else
  // Shift the fraction into place and scale the exponent: exact for subnormal numbers too.
  const U u = __builtin_convertvector(h, U), m = (u & 0x7fff) << 13;
  const V s = as<V>(m) * 0x1p112f;
  const U b = (u & 0x7c00) == 0x7c00 ? m | 0x7f800000 : as<U>(s);
  return as<V>(b | (u & 0x8000) << 16);
#endif
}

//@ to_f16
FN H fl_to_f16(V a) {
#if defined(__AVX512F__) && L == 16
  typedef short h16 __attribute__((vector_size(32)));
  return (H)__builtin_ia32_vcvtps2ph512_mask(a, 0, (h16){}, -1);
#elif defined(__F16C__) && L == 8
  return (H)__builtin_ia32_vcvtps2ph256(a, 0);
#else
  // Adds a power of two that puts the last kept bit at the end of the fraction, so that the
  // addition rounds.
  const U u = as<U>(a), sign = u & 0x80000000, m = u ^ sign;
  const V x = as<V>(m);
  const U e = m & 0x7f800000, low = (U){} + 0x38800000;
  const V bias = as<V>((e < low ? low : e) + 0x06800000);
  const U t = as<U>(x + bias) - as<U>(bias);
  const U n = t + ((e < low ? low : e) - low >> 13) ;
  const U r = m > 0x7f800000 ? (U){} + 0x7e00 : m >= 0x477ff000 ? (U){} + 0x7c00 : n;
  return __builtin_convertvector(r | sign >> 16, H);
#endif
}
