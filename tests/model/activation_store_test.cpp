#include "src/model/stage/activation_store.hpp"

#include <gtest/gtest.h>

#include "src/backend/backend.hpp"

namespace trireme::model {
namespace {

class ActivationStoreTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  ActivationStore store_{*backend_};
};

TEST_F(ActivationStoreTest, OpensTheFreeArenaOfTheLowestNumber) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(store_.next_number(), static_cast<std::size_t>(i));
    store_.open(0, i);
  }
  store_.close(0, 2);
  store_.close(0, 0);
  EXPECT_EQ(store_.next_number(), 0U);
  store_.open(1, 0);
  EXPECT_EQ(store_.number(1, 0), 0U);
  EXPECT_EQ(store_.number(0, 1), 1U);
  EXPECT_EQ(store_.next_number(), 2U);
}

TEST_F(ActivationStoreTest, CountsWhatAllOpenArenasHold) {
  store_.open(0, 0).allocate(DType::fp32, {16});
  store_.open(0, 1).allocate(DType::fp32, {32});
  EXPECT_EQ(store_.used_bytes(), 48 * 4U);
  store_.note_peak();
  store_.close(0, 0);
  store_.note_peak();
  EXPECT_EQ(store_.used_bytes(), 32 * 4U);
  EXPECT_EQ(store_.peak_bytes(), 48 * 4U);
}

TEST_F(ActivationStoreTest, KeepsTheMemoryOfClosedArenas) {
  store_.open(0, 0).allocate(DType::fp32, {16});
  store_.open(1, 0).allocate(DType::fp32, {16});
  const std::size_t reserved = store_.reserved_bytes();
  store_.close_all();
  EXPECT_EQ(store_.used_bytes(), 0U);
  EXPECT_EQ(store_.next_number(), 0U);
  store_.open(0, 5).allocate(DType::fp32, {16});
  EXPECT_EQ(store_.reserved_bytes(), reserved);
}

}  // namespace
}  // namespace trireme::model
