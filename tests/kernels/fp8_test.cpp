// Operands rounded to FP8 by kernels, bit for bit against the definition of src/backend/kernels/fp8.hpp.
#include "cuda/kernels/fp8.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;
using cuda::Fp8Blocks;

constexpr int margin = 1;

struct Case {
  std::int64_t rows, columns;
  Fp8Blocks blocks;
  DType dtype;
  Fp8Format format;
  bool makes_rows, makes_columns;
  Activation activation = Activation::none;  // source
  bool is_gradient = false;
};

/// A form in which [columns / 128, rows] blocks, or squares, have scales.
struct Form {
  std::vector<std::uint8_t> codes;
  std::map<std::int64_t, float> scales;  // by place; the rest is padding
};

/// The definition, of x [rows, columns] along its columns.
Form form_of(const std::vector<float>& x, std::int64_t rows, std::int64_t columns, const Case& c, float amax) {
  Form form;
  const std::int64_t padded = ((columns + 127) / 128 + 3) / 4 * 4;
  const auto place = [&](std::int64_t i, std::int64_t j) {
    return c.blocks == Fp8Blocks::whole     ? 0
           : c.blocks == Fp8Blocks::vectors ? j / 128 * rows + i
                                            : i / 128 * padded + j / 128;
  };
  std::map<std::int64_t, float> largest;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float& size = largest[place(i, j)];
      size = c.blocks == Fp8Blocks::whole ? amax : std::max(size, std::abs(x[i * columns + j]));
    }
  }
  for (const auto& [at, size] : largest) form.scales[at] = power_of_two(-fp8_scale_exponent(size, c.format, margin));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const float scaled = x[i * columns + j] / form.scales[place(i, j)];
      form.codes.push_back(fp8_code(round_to_fp8(scaled, c.format), c.format));
    }
  }
  return form;
}

class RoundedOperands : public testing::Test {
 protected:
  void expect_rounded(const Case& c) {
    SCOPED_TRACE(fmt::format("{} x {}, blocks {}, {}, format {}, {} {}, activation {} {}", c.rows, c.columns,
                             static_cast<int>(c.blocks), name_of(c.dtype), static_cast<int>(c.format), c.makes_rows,
                             c.makes_columns, static_cast<int>(c.activation), c.is_gradient));
    std::vector<double> values = values_of(b_, random_tensor(b_, DType::fp32, {c.rows, c.columns}, 7, -3, 3));
    // Magnitudes of all sizes, some below the formats' normal ones.
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], -static_cast<int>(i * i % 23));
    values[3] = -0.0;
    const Tensor x = make_tensor(b_, c.dtype, {c.rows, c.columns}, values);
    // A source gives the bits of a kernel of its own.
    Tensor z, result(b_, c.dtype, x.view().shape());
    if (c.is_gradient) {
      z = random_tensor(b_, c.dtype, x.view().shape(), 8, -3, 3);
      b_.elementwise().activate_backward(b_.compute_stream(), c.activation, x, z, result);
    } else {
      b_.elementwise().activate(b_.compute_stream(), c.activation, x, result);
    }
    values = values_of(b_, result);
    const std::vector<float> given(values.begin(), values.end());
    std::vector<float> turned(given.size());
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.columns; ++j) turned[j * c.rows + i] = given[i * c.columns + j];
    }

    const bool by_blocks = c.blocks != Fp8Blocks::whole, has_sums = c.is_gradient;
    const float amax = 1.3f;  // larger numbers saturate
    const Tensor limit = make_tensor(b_, DType::fp64, {1}, {amax}), seen = make_tensor(b_, DType::fp64, {1}, {0.25});
    // Words of -1: all bytes are 0xff.
    const std::int64_t words = (fp8_copy_bytes(c.rows, c.columns, by_blocks) + fp8_sums_bytes(c.rows, c.columns)) / 4;
    std::vector<std::int32_t> bytes(static_cast<std::size_t>(words), -1);
    const Tensor memory = make_tensor(b_, {words}, bytes);
    cuda::Fp8Forms forms = cuda::fp8_forms(memory.view().data(), c.rows, c.columns, by_blocks, has_sums);
    if (!c.makes_rows) forms.rows = nullptr;
    if (!c.makes_columns) forms.columns = nullptr;
    cuda::round_operand(b_.compute_stream(), c.dtype, c.rows, c.columns, x.view().data(),
                        {.format = c.format,
                         .amax = by_blocks ? TensorView() : limit.view(),
                         .seen = seen,
                         .source = {c.activation, z}},
                        margin, c.blocks, forms);
    b_.copy_to_host(b_.compute_stream(), memory, TensorView(bytes.data(), Shape{words}));
    b_.compute_stream().synchronize();
    const cuda::Fp8Forms all =
        cuda::fp8_forms(reinterpret_cast<std::byte*>(bytes.data()), c.rows, c.columns, by_blocks, true);

    const auto expect_form = [&](const std::uint8_t* codes, const float* scales, const Form& form, const char* name) {
      ASSERT_EQ(std::vector<std::uint8_t>(codes, codes + form.codes.size()), form.codes) << name;
      for (const auto& [at, scale] : form.scales) ASSERT_EQ(scales[at], scale) << name << " " << at;
    };
    if (c.makes_rows) {
      expect_form(all.rows, all.row_scales, form_of(given, c.rows, c.columns, c, amax), "rows");
    } else {
      EXPECT_EQ(*all.rows, 0xff);
    }
    if (c.makes_columns) {
      expect_form(all.columns, all.column_scales, form_of(turned, c.columns, c.rows, c, amax), "columns");
    } else {
      EXPECT_EQ(*all.columns, 0xff);
    }
    std::vector<double> expected(static_cast<std::size_t>((c.rows + 127) / 128 * c.columns));
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.columns; ++j) expected[i / 128 * c.columns + j] += values[i * c.columns + j];
    }
    if (has_sums) {
      expect_close(std::vector<double>(all.sums, all.sums + expected.size()), expected,
                   tolerance(DType::fp32, Operation::sum), "sums");
    } else {
      EXPECT_TRUE(std::isnan(*all.sums));
    }
    double largest = 0.25;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(values_of(b_, seen).front(), largest);
  }

  std::unique_ptr<Backend> backend_ = test::make_backend(2);
  Backend& b_ = *backend_;
};

TEST_F(RoundedOperands, AreThoseOfTheDefinition) {
  for (const Fp8Blocks blocks : {Fp8Blocks::whole, Fp8Blocks::vectors, Fp8Blocks::squares}) {
    expect_rounded({144, 272, blocks, DType::bf16, Fp8Format::e4m3, true, true});
    expect_rounded({272, 16, blocks, DType::bf16, Fp8Format::e5m2, true, true});
    expect_rounded({16, 144, blocks, DType::fp32, Fp8Format::e5m2, false, true});
    expect_rounded({48, 128, blocks, DType::fp32, Fp8Format::e4m3, true, false});
  }
}

TEST_F(RoundedOperands, AreThoseOfTheirSources) {
  const Activation tanh_form = Activation::gelu_tanh, erf_form = Activation::gelu_erf;
  const Fp8Blocks whole = Fp8Blocks::whole, vectors = Fp8Blocks::vectors;
  expect_rounded({144, 272, whole, DType::bf16, Fp8Format::e4m3, true, true, tanh_form});
  expect_rounded({144, 272, whole, DType::bf16, Fp8Format::e5m2, true, true, tanh_form, true});
  expect_rounded({272, 144, vectors, DType::bf16, Fp8Format::e4m3, true, true, erf_form, true});
  expect_rounded({48, 128, vectors, DType::fp32, Fp8Format::e4m3, true, false, erf_form});
  expect_rounded({144, 48, whole, DType::fp32, Fp8Format::e5m2, false, true, tanh_form, true});
}

TEST_F(RoundedOperands, MeasureNumbersThatAreNotFiniteAsInfinite) {
  std::vector<double> values(256, 1.0);
  values[77] = std::nan("");
  const Tensor x = make_tensor(b_, DType::bf16, {16, 16}, values);
  const Tensor limit = make_tensor(b_, DType::fp64, {1}, {1}), seen = make_tensor(b_, DType::fp64, {1}, {0});
  const Tensor memory(b_, DType::uint8, {fp8_copy_bytes(16, 16, false)});
  cuda::round_operand(b_.compute_stream(), DType::bf16, 16, 16, x.view().data(), {.amax = limit, .seen = seen}, margin,
                      Fp8Blocks::whole, cuda::fp8_forms(memory.view().data(), 16, 16, false, false));
  EXPECT_TRUE(std::isinf(values_of(b_, seen).front()));
}

}  // namespace
}  // namespace trireme
