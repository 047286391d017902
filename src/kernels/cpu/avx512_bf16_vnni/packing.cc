// Activations to the forms that the narrow matmuls read (matmul_kernels.h, ActivationForm).
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/simd.h"

namespace tenon::avx512_bf16_vnni {
namespace {

// Sixteen columns: their integers as two bytes each.
struct Part {
  __m128i high, low;
};
// One block of 32 columns, of which the first `cols` exist.
struct Block {
  Part first, second;  // elements 0-15 and 16-31
  float scale;
  __m512i sums;  // of elements i and 16 + i
};

TN_INLINE Block QuantiseBlock(const float* x, int64_t cols) {
  const auto part = [&](int64_t begin) {
    const int64_t n = cols - begin;
    if (n >= kLanes) return _mm512_loadu_ps(x + begin);
    return n <= 0 ? _mm512_setzero_ps() : reinterpret_cast<__m512>(LoadFirst(x + begin, n));
  };
  const __m512 x0 = part(0);
  const __m512 x1 = part(kLanes);
  const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
  const __m512 inverse = _mm512_set1_ps(top > 0 ? kIntegerTop / top : 0.0f);
  const __m512i integers[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)),
                               _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse))};
  const auto narrow = [&](__m512i integer) -> Part {
    // The low byte is signed: half a step is added before the high one is cut off.
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(integer, _mm512_set1_epi32(128)), 8);
    return {_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(integer)};
  };
  const bool has_nan =
      (_mm512_cmp_ps_mask(x0, x0, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(x1, x1, _CMP_UNORD_Q)) != 0;
  return {narrow(integers[0]), narrow(integers[1]),
          has_nan ? __builtin_nanf("") : top / kIntegerTop,
          _mm512_add_epi32(integers[0], integers[1])};
}

// start + the sums of four neighbours in each lane.
TN_INLINE __m512i AddLanes(__m512i start, __m512i bytes) {
  return _mm512_dpbusd_epi32(start, _mm512_set1_epi8(1), bytes);
}
TN_INLINE __m512i LaneSums(__m512i high, __m512i low) {
  return AddLanes(_mm512_slli_epi32(AddLanes(_mm512_setzero_si512(), high), 8), low);
}
TN_INLINE __m512i Negative(__m512i v) { return _mm512_sub_epi32(_mm512_setzero_si512(), v); }

void PackNibbles(const float* x, int64_t cols, std::byte* packed) {
  for (int64_t begin = 0; begin < cols; begin += kNibblesGroup, packed += kNibblesGroupBytes) {
    alignas(64) float scales[kLanes];
    const auto store = [&](int64_t offset, __m128i part) {
      _mm_store_si128(reinterpret_cast<__m128i*>(packed + offset), part);
    };
    for (int64_t b = 0; b < 4; ++b) {
      const Block block = QuantiseBlock(x + begin + 32 * b, cols - begin - 32 * b);
      store(16 * b, block.first.high);
      store(64 + 16 * b, block.second.high);
      store(128 + 16 * b, block.first.low);
      store(192 + 16 * b, block.second.low);
      _mm_store_ps(scales + 4 * b, _mm_set1_ps(block.scale));
    }
    const auto plane = [&](int64_t offset) { return _mm512_load_si512(packed + offset); };
    const __m512 scale = _mm512_load_ps(scales);
    const __m512i sums =
        _mm512_add_epi32(LaneSums(plane(0), plane(128)), LaneSums(plane(64), plane(192)));
    const __m512i pairs = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
    const __m512i block_sums = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    _mm512_store_si512(packed + 256, Negative(_mm512_slli_epi32(sums, 3)));
    _mm512_store_ps(packed + 320, scale);
    _mm512_store_ps(packed + 384, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale));
    _mm512_store_ps(packed + 448, _mm512_mul_ps(_mm512_cvtepi32_ps(block_sums), scale));
  }
}

void PackBytes(const float* x, int64_t cols, std::byte* packed) {
  for (int64_t begin = 0; begin < cols; begin += kBytesGroup, packed += kBytesGroupBytes) {
    const Block first = QuantiseBlock(x + begin, cols - begin);
    const Block second = QuantiseBlock(x + begin + 32, cols - begin - 32);
    const auto join = [](__m128i a, __m128i b, __m128i c, __m128i d) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)),
                                _mm256_set_m128i(d, c), 1);
    };
    const __m512i high =
        join(first.first.high, first.second.high, second.first.high, second.second.high);
    const __m512i low =
        join(first.first.low, first.second.low, second.first.low, second.second.low);
    const __m512i sums = LaneSums(high, low);
    const __m512 scale =
        _mm512_insertf32x8(_mm512_set1_ps(first.scale), _mm256_set1_ps(second.scale), 1);
    _mm512_store_si512(packed, high);
    _mm512_store_si512(packed + 64, low);
    _mm512_store_si512(packed + 128, Negative(sums));
    _mm512_store_ps(packed + 192, scale);
    _mm512_store_ps(packed + 256, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale));
  }
}

void PackIntegers(const float* x, int64_t cols, std::byte* packed) {
  const auto store = [&](int64_t offset, __m128i part) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + offset), part);
  };
  for (int64_t begin = 0; begin < (cols + 63) / 64 * 64; begin += 32) {
    const Block block = QuantiseBlock(x + begin, cols - begin);
    const int sum = _mm512_reduce_add_epi32(block.sums);
    const auto times = [&](uint32_t factor) {  // wraps where a NaN has no integer
      return static_cast<int>(factor * static_cast<uint32_t>(sum));
    };
    store(0, block.first.high);
    store(16, block.second.high);
    store(32, block.first.low);
    store(48, block.second.low);
    const __m128i scales =
        _mm_castps_si128(_mm_setr_ps(block.scale, block.scale * static_cast<float>(sum), 0, 0));
    store(64, _mm_insert_epi32(_mm_insert_epi32(scales, times(-8u), 2), times(-128u), 3));
    packed += kIntegersBlockBytes;
  }
}

void PackInt8Row(const float* x, int64_t cols, std::byte* packed) {
  constexpr float kLeast = 0x1p-119f;  // what the inverse of the scale is finite for
  const auto part = [&](int64_t begin) {
    const int64_t n = cols - begin;
    return reinterpret_cast<__m512>(n >= kLanes ? Load(x + begin)
                                    : n <= 0    ? F32{}
                                                : LoadFirst(x + begin, n));
  };
  __m512 tops = _mm512_setzero_ps();
  __mmask16 not_finite = 0;
  for (int64_t i = 0; i < cols; i += kLanes) {
    const __m512 v = _mm512_abs_ps(part(i));
    tops = _mm512_max_ps(tops, v);
    not_finite |= _mm512_cmp_ps_mask(v, _mm512_set1_ps(__builtin_inff()), _CMP_NLT_UQ);
  }
  const float top = _mm512_reduce_max_ps(tops);
  const bool zero = top < kLeast;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : kInt8Top / top);
  __m512i sums = _mm512_setzero_si512();
  const int64_t padded = ActivationRowBytes(ActivationForm::kInt8Row, cols) - kInt8TailBytes;
  for (int64_t i = 0; i < padded; i += kLanes) {
    const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(part(i), inverse));
    sums = _mm512_add_epi32(sums, integers);
    _mm_store_si128(reinterpret_cast<__m128i*>(packed + i), _mm512_cvtepi32_epi8(integers));
  }
  const float scale = not_finite != 0 ? __builtin_nanf("") : zero ? 0.0f : top / kInt8Top;
  const auto sum = static_cast<uint32_t>(_mm512_reduce_add_epi32(sums));
  const auto tail = _mm_castps_si128(_mm_set_ss(scale));
  _mm512_store_si512(packed + padded, _mm512_zextsi128_si512(_mm_insert_epi32(
                                          tail, static_cast<int32_t>(sum * -128u), 1)));
}

TN_INLINE __m256i Bf16Of(F32 v) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
}

void PackBf16(const float* x, int64_t cols, std::byte* packed) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + 2 * i), Bf16Of(Load(x + i)));
  }
  for (const int64_t end = ActivationRowBytes(ActivationForm::kBf16, cols) / 2; i < end;
       i += kLanes) {
    const F32 rest = i < cols ? LoadFirst(x + i, cols - i) : F32{};
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + 2 * i), Bf16Of(rest));
  }
}

}  // namespace

// Pairs of columns of up to six tokens: sixteen pairs of a token are one vector, transposed.
void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block) {
  auto* pairs = reinterpret_cast<uint32_t*>(block);  // [cols / 2][kBlockTokens]
  const int64_t count = (cols + 1) / 2;
  for (int64_t begin = 0; begin < count; begin += kLanes) {
    alignas(64) uint32_t rows[kBlockTokens][kLanes];
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      const auto half = [&](int64_t i) {
        const int64_t n = t < tokens ? cols - i : 0;
        if (n >= kLanes) return Load(x + t * x_stride + i);
        return n <= 0 ? F32{} : LoadFirst(x + t * x_stride + i, n);
      };
      const __m256i low = Bf16Of(half(2 * begin));
      const __m256i high = Bf16Of(half(2 * begin + kLanes));
      _mm256_store_si256(reinterpret_cast<__m256i*>(rows[t]), low);
      _mm256_store_si256(reinterpret_cast<__m256i*>(rows[t] + 8), high);
    }
    const int64_t n = count - begin < kLanes ? count - begin : kLanes;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t t = 0; t < kBlockTokens; ++t) {
        pairs[(begin + i) * kBlockTokens + t] = rows[t][i];
      }
    }
  }
}

void AddPacking(MatmulKernels& matmul) {
  const auto add = [&](ActivationForm form, PackRowFunction* run, const char* name) {
    matmul.pack[static_cast<int>(form)] = {run, name};
  };
  add(ActivationForm::kBf16, PackBf16, TN_KERNEL_NAME("pack_bf16"));
  add(ActivationForm::kNibbles, PackNibbles, TN_KERNEL_NAME("pack_int16"));
  add(ActivationForm::kBytes, PackBytes, TN_KERNEL_NAME("pack_int16"));
  add(ActivationForm::kIntegers, PackIntegers, TN_KERNEL_NAME("pack_int16"));
  add(ActivationForm::kInt8Row, PackInt8Row, TN_KERNEL_NAME("pack_int8_row"));
  matmul.blocks = {{PackBlock, TN_KERNEL_NAME("pack_block")}, kBlockTokens, 2};
}

}  // namespace tenon::avx512_bf16_vnni
