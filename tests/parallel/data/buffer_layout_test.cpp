#include "src/parallel/data/buffer_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/stage/model_parameters.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::parallel {
namespace {

Parameter parameter(const std::string& name, std::int64_t numel, int unit) {
  Parameter p = test::whole_parameter(name, ParameterRole::matrix, {numel});
  p.unit = unit;
  return p;
}

/// Three groups of two; a multiple of 64 bytes is 16 elements of fp32.
std::vector<Parameter> six() {
  return {parameter("a", 20, 0),  parameter("b", 5, 0),  parameter("c", 16, 1),
          parameter("d", 100, 1), parameter("e", 33, 2), parameter("f", 16, 2)};
}

TEST(BufferLayout, BeginsWithTheLastParameter) {
  const BufferLayout layout(DType::fp32, six(), {});
  EXPECT_EQ(layout.offset(5), 0);
  EXPECT_EQ(layout.offset(4), 16);
  EXPECT_EQ(layout.offset(3), 64);
  EXPECT_EQ(layout.offset(2), 176);
  EXPECT_EQ(layout.offset(1), 192);
  EXPECT_EQ(layout.offset(0), 208);
  EXPECT_EQ(layout.elements(), 240);
  ASSERT_EQ(layout.buckets().size(), 1u);
  EXPECT_THAT(layout.buckets()[0].parameters, testing::ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST(BufferLayout, ClosesABucketThatIsFull) {
  const BufferLayout layout(DType::fp32, six(), {{1}, 100, false});
  ASSERT_EQ(layout.buckets().size(), 2u);
  // f, e and d are 16 + 48 + 112.
  EXPECT_THAT(layout.buckets()[0].parameters, testing::ElementsAre(5, 4, 3));
  EXPECT_EQ(layout.buckets()[0].size, 176);
  EXPECT_EQ(layout.buckets()[1].begin, 176);
  EXPECT_EQ(layout.bucket_of(2), 1u);
  EXPECT_EQ(layout.units(0)[1].first_bucket, 0u);
  EXPECT_EQ(layout.units(0)[1].last_bucket, 2u);
  EXPECT_EQ(layout.units(0)[2].last_bucket, 1u);
}

TEST(BufferLayout, FrozenParametersFollowAllBucketsInOneShard) {
  std::vector<Parameter> parameters = six();
  for (const std::size_t i : {0, 2, 3}) parameters[i].frozen = true;
  const BufferLayout layout(DType::fp32, parameters, {{2}, 0, false});
  ASSERT_EQ(layout.buckets().size(), 1u);
  EXPECT_THAT(layout.buckets()[0].parameters, testing::ElementsAre(5, 4, 1));
  // f, e and b are 16 + 48 + 16, which two shards round up to 96; a, c and d are 32 + 16 + 112.
  EXPECT_EQ(layout.elements(), 96);
  EXPECT_EQ(layout.all_elements(), 256);
  EXPECT_EQ(layout.offset(0), 96);
  EXPECT_EQ(layout.offset(2), 128);
  EXPECT_EQ(layout.offset(3), 144);
  EXPECT_EQ(layout.units(0)[1].size, 0);
  for (const int shard : {0, 1}) {
    EXPECT_EQ(layout.shard_range(3, 100, shard).begin, 0);
    EXPECT_EQ(layout.shard_range(3, 100, shard).count, 100);
  }
}

TEST(BufferLayout, BucketsMayEndWithTheirGroups) {
  const BufferLayout layout(DType::fp32, six(), {{3}, 0, true});
  ASSERT_EQ(layout.buckets().size(), 3u);
  for (std::size_t g = 0; g < 3; ++g) {
    const Bucket& bucket = layout.buckets()[2 - g];
    EXPECT_EQ(layout.units(0)[g].begin, bucket.begin);
    EXPECT_EQ(layout.units(0)[g].size, bucket.size);
    EXPECT_EQ(bucket.size % (3 * 16), 0);
  }
}

TEST(BufferLayout, ATiedTableHasItsOwnBucket) {
  std::vector<Parameter> list = six();
  list[2].tied = true;
  const BufferLayout layout(DType::fp32, list, {});
  ASSERT_EQ(layout.buckets().size(), 3u);
  EXPECT_THAT(layout.buckets()[1].parameters, testing::ElementsAre(2));
}

TEST(BufferLayout, AGradientGroupHasItsOwnBucketsAndShards) {
  std::vector<Parameter> list = six();
  for (const std::size_t i : {1, 3, 4}) list[i].gradient_group = 1;
  const BufferLayout layout(DType::fp32, list, {{2, 3}, 0, false});
  ASSERT_EQ(layout.buckets().size(), 2u);
  EXPECT_THAT(layout.buckets()[0].parameters, testing::ElementsAre(5, 2, 0));
  EXPECT_THAT(layout.buckets()[1].parameters, testing::ElementsAre(4, 3, 1));
  EXPECT_EQ(layout.buckets()[0].size, 64);  // 16 + 16 + 32: two shards of 32
  EXPECT_EQ(layout.buckets()[1].begin, 64);
  EXPECT_EQ(layout.buckets()[1].size, 192);  // 48 + 112 + 16 is 176: three shards of 64
  EXPECT_EQ(layout.buckets()[1].shard_begin, 32);
  EXPECT_EQ(layout.shard_elements(), 32 + 64);
  // Unit 0 has a of one group and b of the other; all of unit 2 but f is of the second.
  EXPECT_EQ(layout.units(0)[0].begin, 32);
  EXPECT_EQ(layout.units(1)[0].begin, 64 + 48 + 112);
  EXPECT_EQ(layout.units(1)[0].size, 32);  // with the bucket's padding
  EXPECT_EQ(layout.units(0)[2].size, 16);
  EXPECT_EQ(layout.shard_range(3, 100, 1).begin, 16);  // d lies at 48 of its bucket: 16, 64 and 20 elements
  EXPECT_EQ(layout.shard_range(3, 100, 1).count, 64);
}

TEST(BufferLayout, ShardsCoverEveryElementOnce) {
  for (const int shards : {1, 2, 3, 7}) {
    for (const std::int64_t bucket : {0, 1, 60, 100}) {
      for (const bool unit_buckets : {false, true}) {
        const std::vector<Parameter> list = six();
        const BufferLayout layout(DType::bf16, list, {{shards}, bucket, unit_buckets});
        EXPECT_EQ(layout.shard_elements() * shards, layout.elements());
        for (std::size_t i = 0; i < list.size(); ++i) {
          std::int64_t next = 0;
          for (int shard = 0; shard < shards; ++shard) {
            const ShardRange range = layout.shard_range(i, list[i].stored_numel(), shard);
            if (range.count == 0) continue;
            EXPECT_EQ(range.begin, next);
            next += range.count;
            const Bucket& home = layout.buckets()[layout.bucket_of(i)];
            EXPECT_EQ(home.begin + home.size / shards * shard + range.at, layout.offset(i) + range.begin);
          }
          EXPECT_EQ(next, list[i].stored_numel());
        }
      }
    }
  }
}

TEST(ParameterBuffer, NeighboursOfOneKindFormOneStretch) {
  std::vector<Parameter> list = six();
  for (const std::size_t i : {1, 2, 5}) list[i].role = ParameterRole::bias;
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  using Stretch = std::tuple<bool, std::int64_t, std::int64_t>;
  const auto stretches = [&](int shards, int shard) {
    DataParallelOptions options;
    options.sharding = shards > 1 ? DataSharding::optimizer : DataSharding::none;
    const ParameterBuffer buffer(*backend, DType::fp32, list, options, {{shards, shard}});
    std::vector<Stretch> seen;
    buffer.for_each_stretch(
        0, [](const Parameter& p) { return decays(p.role); },
        [&](bool decays, std::int64_t begin, std::int64_t count) { seen.emplace_back(decays, begin, count); });
    return seen;
  };
  EXPECT_THAT(stretches(1, 0), testing::ElementsAre(Stretch(false, 0, 16), Stretch(true, 16, 148),
                                                    Stretch(false, 176, 21), Stretch(true, 208, 20)));
  // A shard of 128: the first ends in d.
  EXPECT_THAT(stretches(2, 0), testing::ElementsAre(Stretch(false, 0, 16), Stretch(true, 16, 112)));
  EXPECT_THAT(stretches(2, 1),
              testing::ElementsAre(Stretch(true, 0, 36), Stretch(false, 48, 21), Stretch(true, 80, 20)));
}

TEST(BufferLayout, BothEndsOfAPipelineCutTheTiedTableAlike) {
  const model::ModelConfig config = {
      .layers = 4, .hidden = 32, .heads = 4, .ffn_hidden = 128, .max_positions = 16, .vocabulary = 1003};
  const VocabularyPartition vocabulary(config.vocabulary, 0, 1);
  const auto list = [&](int stage) {
    return model::model_parameters(
        config, model::StageShard::of(parallel::PipelineLayout::of(config.layers, 2), 0, 1, stage), vocabulary);
  };
  const std::vector<Parameter> first = list(0);
  const std::vector<Parameter> last = list(1);
  const BufferLayout a(DType::bf16, first, {{3}, 0, false});
  const BufferLayout b(DType::bf16, last, {{3}, 0, false});
  ASSERT_EQ(first.front().name, "wte");
  ASSERT_EQ(last.back().name, "wte");
  for (int shard = 0; shard < 3; ++shard) {
    const ShardRange in_first = a.shard_range(0, first.front().stored_numel(), shard);
    const ShardRange in_last = b.shard_range(last.size() - 1, last.back().stored_numel(), shard);
    EXPECT_EQ(in_first.begin, in_last.begin);
    EXPECT_EQ(in_first.count, in_last.count);
    EXPECT_GT(in_first.count, 0);
  }
}

}  // namespace
}  // namespace trireme::parallel
