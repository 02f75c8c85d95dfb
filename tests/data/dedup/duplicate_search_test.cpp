#include "src/data/dedup/duplicate_search.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <random>
#include <set>

#include "src/base/hash.hpp"
#include "src/base/utf8.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/data/dedup/clusters.hpp"
#include "src/data/dedup/minhash.hpp"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint64_t> shingles(std::string_view text, const ShingleOptions& options) {
  std::vector<std::uint64_t> hashes;
  shingle_hashes(text, options, hashes);
  return hashes;
}

TEST(Shingles, AreAllStretchesOfFiveCharactersWhateverTheirBytes) {
  EXPECT_EQ(shingles("abcdefg", {}).size(), 3u);
  EXPECT_EQ(shingles("äbcdeé", {}).size(), 2u);
  EXPECT_EQ(shingles("äbcde", {}), shingles("äbcde", {}));
  EXPECT_EQ(shingles("xabcde", {}).back(), shingles("abcde", {}).front());
  EXPECT_EQ(shingles("abc", {}).size(), 1u);
  EXPECT_THAT(shingles("", {}), IsEmpty());
  EXPECT_EQ(shingles("\xFF\xFE\xFD\xFC\xFB\xFA", {}).size(), 2u);  // invalid bytes count as characters
}

TEST(Shingles, AreTheSameInTextsWithAndWithoutOtherCharacters) {
  std::mt19937 random(4);
  for (const int size : {1, 4, 5, 9}) {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      const unsigned kind = random() % 40;
      text += kind == 0   ? "é"
              : kind == 1 ? "\xFF"
              : kind == 2 ? "中"
                          : std::string(1, static_cast<char>('a' + kind % 7));
    }
    std::vector<std::size_t> begins;  // first bytes of the characters
    for_each_character(text, [&](Utf8Character, std::string_view bytes) {
      begins.push_back(static_cast<std::size_t>(bytes.data() - text.data()));
    });
    begins.push_back(text.size());
    const auto length = static_cast<std::size_t>(size);
    std::vector<std::uint64_t> expected;
    for (std::size_t i = 0; i + length < begins.size(); ++i) {
      expected.push_back(hash64(text.data() + begins[i], begins[i + length] - begins[i], 0));
    }
    EXPECT_EQ(shingles(text, {.size = size}), expected) << size;
  }
}

TEST(Shingles, OfWordsAreStretchesOfSuccessiveWords) {
  const ShingleOptions two_words{.unit = ShingleUnit::words, .size = 2};
  EXPECT_EQ(shingles("one two three", two_words).size(), 2u);
  EXPECT_EQ(shingles(" zero one two", two_words).back(), shingles("one two three", two_words).front());
  EXPECT_EQ(shingles("one", two_words).size(), 1u);
  EXPECT_THAT(shingles(" \n ", two_words), IsEmpty());
}

TEST(Shingles, AreFoldedOnRequest) {
  const ShingleOptions folding{.folding = ShingleFolding::case_and_white_space};
  EXPECT_EQ(shingles("  Ärger \n und\tANDERES ", folding), shingles("ärger und anderes", {}));
  EXPECT_NE(shingles("Oars and", {}), shingles("oars and", {}));
}

TEST(Shingles, BecomeASetHoweverManyAreEqual) {
  std::mt19937_64 random(3);
  for (const std::size_t size : {0u, 1u, 2u, 3u, 1000u, 40'000u}) {
    for (const std::uint64_t mask : {~0ull, 7ull, 0ull}) {
      std::vector<std::uint64_t> hashes(size);
      for (std::uint64_t& hash : hashes) hash = mix64(random() & mask);
      std::vector<std::uint64_t> expected;
      std::set<std::uint64_t> met;
      std::ranges::copy_if(hashes, std::back_inserter(expected), [&](auto hash) { return met.insert(hash).second; });
      make_set(hashes);
      EXPECT_EQ(hashes, expected);
    }
  }
}

TEST(Shingles, AreComparedInAnyOrder) {
  const std::vector<std::uint64_t> some{5, 0, std::uint64_t{1} << 63, 7}, others{7, 9, 0};
  EXPECT_EQ(jaccard(some, others), 2.0 / 5);
  EXPECT_EQ(jaccard(others, some), 2.0 / 5);
  EXPECT_EQ(jaccard(some, some), 1);
  EXPECT_EQ(jaccard(some, {}), 0);
  EXPECT_EQ(jaccard({}, {}), 1);
}

// Documents of two templates alternate. Those of one template have J = 0.6; the last nearly repeats document 1.
TEST(DuplicateSearch, ReadsEachDocumentOfATemplateOnceForAllItsNeighbours) {
  constexpr std::int64_t documents = 400;
  const MinHash minhash({});
  std::mt19937_64 random(5);
  std::vector<std::vector<std::uint64_t>> sets(documents);
  std::vector<std::string> sketches(documents, std::string(static_cast<std::size_t>(minhash.sketch_bytes()), ' '));
  Fingerprints fingerprints;
  fingerprints.bands = minhash.bands();
  fingerprints.band_keys.resize(documents * static_cast<std::size_t>(minhash.bands()));
  for (std::size_t d = 0; d < documents; ++d) {
    for (std::uint64_t i = 0; i < 300; ++i) sets[d].push_back(mix64(d % 2 * 1000 + i));
    for (int i = 0; i < 100; ++i) sets[d].push_back(random());
    if (d + 1 == documents) std::copy_n(sets[1].begin(), 380, sets[d].begin());
    make_set(sets[d]);
    const auto bands = static_cast<std::size_t>(minhash.bands());
    minhash.band_keys(sets[d], std::span(fingerprints.band_keys).subspan(d * bands, bands), sketches[d]);
    fingerprints.documents.push_back(static_cast<std::int64_t>(d));
    fingerprints.digests.push_back({d, d});
  }
  std::atomic<std::int64_t> read = 0;
  DuplicateSearchOptions options;
  options.neighbours = documents;
  options.sketch = [&](std::int64_t d) { return sketches[static_cast<std::size_t>(d)]; };
  options.shingle_set = [&](std::int64_t d) { return ++read, sets[static_cast<std::size_t>(d)]; };
  SelfCommunicator self;
  ThreadPool pool(1);
  const auto found = find_duplicates(self, pool, fingerprints, options);
  ASSERT_EQ(found.duplicates.size(), 1u);
  EXPECT_EQ(found.duplicates[0].document, documents - 1);
  EXPECT_EQ(found.duplicates[0].kept, 1);
  EXPECT_GT(found.compared_pairs, 20 * documents);
  EXPECT_LE(read, documents);
}

// Documents differ from their template in a twentieth: J is about 0.82. One comparison joins each to its cluster; the
// other neighbours in that cluster need none.
TEST(DuplicateSearch, ComparesEachDocumentOfAClusterAboutOnce) {
  constexpr std::size_t documents = 500;
  const MinHash minhash({});
  std::mt19937_64 random(7);
  std::vector<std::vector<std::uint64_t>> sets(documents);
  std::vector<std::string> sketches(documents, std::string(static_cast<std::size_t>(minhash.sketch_bytes()), ' '));
  Fingerprints fingerprints;
  fingerprints.bands = minhash.bands();
  const auto bands = static_cast<std::size_t>(minhash.bands());
  fingerprints.band_keys.resize(documents * bands);
  for (std::size_t d = 0; d < documents; ++d) {
    for (std::uint64_t i = 0; i < 200; ++i) sets[d].push_back(random() % 20 == 0 ? random() : mix64(d % 5 * 1000 + i));
    make_set(sets[d]);
    minhash.band_keys(sets[d], std::span(fingerprints.band_keys).subspan(d * bands, bands), sketches[d]);
    fingerprints.documents.push_back(static_cast<std::int64_t>(d));
    fingerprints.digests.push_back({d, d});
  }
  DuplicateSearchOptions options;
  options.sketch = [&](std::int64_t d) { return sketches[static_cast<std::size_t>(d)]; };
  options.shingle_set = [&](std::int64_t d) { return sets[static_cast<std::size_t>(d)]; };
  SelfCommunicator self;
  ThreadPool pool(2);
  const auto found = find_duplicates(self, pool, fingerprints, options);
  EXPECT_EQ(found.duplicates.size(), documents - 5);
  EXPECT_LT(found.compared_pairs, 2 * static_cast<std::int64_t>(documents));
}

// Two random sets of 300 with 200 in common have J = 0.5. That fraction of 20,000 functions (bands of one row) agrees,
// with a standard deviation of 0.0035. Bands of two rows agree with probability J^2.
TEST(MinHash, MatchesABandWithTheTheoreticalProbability) {
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> a, b;
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t element = random();
    if (i < 300) a.push_back(element);
    if (i >= 100) b.push_back(element);
  }
  for (const int rows : {1, 2}) {
    const MinHash minhash({.bands = 20000, .rows = rows, .seed = 1234});
    std::vector<std::uint64_t> keys_a(20000), keys_b(20000);
    minhash.band_keys(a, keys_a);
    minhash.band_keys(b, keys_b);
    int equal = 0;
    for (std::size_t i = 0; i < keys_a.size(); ++i) equal += keys_a[i] == keys_b[i] ? 1 : 0;
    EXPECT_NEAR(equal / 20000.0, rows == 1 ? 0.5 : 0.25, 4 * 0.0036) << rows << " rows";
    MinHash({.bands = 20000, .rows = rows, .seed = 1235}).band_keys(a, keys_b);
    EXPECT_NE(keys_a, keys_b) << "another seed has other functions";
  }
}

// The keys and the sketch are those of the set, however often its elements repeat, whatever their lowest bits.
TEST(MinHash, IgnoresRepetition) {
  std::mt19937_64 random(8);
  const MinHash minhash({});
  std::vector<std::uint64_t> once = {0, 1, 4096, std::uint64_t{1} << 32 | 4096};
  for (int i = 0; i < 20'000; ++i) once.push_back(random());
  std::vector<std::uint64_t> often = once;
  for (int i = 0; i < 20'000; ++i) often.push_back(once[random() % once.size()]);
  std::ranges::shuffle(often, random);
  std::vector<std::uint64_t> keys_once(48), keys_often(48);
  for (std::size_t elements : {std::size_t{1}, std::size_t{4}, once.size()}) {
    const auto some = std::span(once).first(elements);
    minhash.band_keys(some, keys_once);
    std::vector<std::uint64_t> twice(some.begin(), some.end());
    twice.insert(twice.end(), some.begin(), some.end());
    minhash.band_keys(elements == once.size() ? often : twice, keys_often);
    EXPECT_EQ(keys_once, keys_often) << elements;
  }
}

// 300 pairs of sets of 300. Each byte of a sketch agrees with probability J, or by chance with 1/256.
TEST(MinHash, SketchesDistinguishSimilarSets) {
  const MinHash minhash({.bands = 48, .rows = 6, .seed = 1234});
  ASSERT_EQ(minhash.sketch_bytes(), 128);
  std::mt19937_64 random(6);
  for (const auto& [common, similar] : {std::pair{250, 300}, std::pair{130, 0}}) {  // J = 0.714, J = 0.277
    int taken = 0;
    for (int pair = 0; pair < 300; ++pair) {
      std::vector<std::uint64_t> a(300), b(300), keys(48);
      std::ranges::generate(a, std::ref(random));
      std::ranges::generate(b, std::ref(random));
      std::copy_n(a.begin(), common, b.begin());
      std::string sketch_a(128, '\0'), sketch_b(128, '\0');
      minhash.band_keys(a, keys, sketch_a);
      minhash.band_keys(b, keys, sketch_b);
      taken += may_be_similar(agreeing_bytes(sketch_a, sketch_b), 128, 0.7) ? 1 : 0;
    }
    EXPECT_EQ(taken, similar) << common << " in common";
  }
  const MinHash small({.bands = 2, .rows = 3, .seed = 1});
  EXPECT_EQ(small.sketch_bytes(), 6);
  EXPECT_TRUE(may_be_similar(agreeing_bytes("abcdef", "uvwxyz"), 6, 0.7));  // six bytes are too few to reject
}

TEST(CandidatePairs, JoinDocumentsOfABucketToTheNearestBeforeThem) {
  constexpr std::uint64_t high = std::uint64_t{7} << 60;
  for (const std::uint64_t key : {std::uint64_t{7}, high}) {
    const std::vector<BucketEntry> entries = {{9, 1},    {3, 2},    {key, 10}, {key + 1, 10},
                                              {key, 20}, {key, 30}, {key, 40}, {key + 1, 40}};
    std::vector<DocumentPair> pairs;
    candidate_pairs(entries, 2, [&](const DocumentPair& pair) { pairs.push_back(pair); });
    EXPECT_THAT(pairs, ElementsAre(DocumentPair{10, 20}, DocumentPair{20, 30}, DocumentPair{10, 30},
                                   DocumentPair{30, 40}, DocumentPair{20, 40}, DocumentPair{10, 40}));
  }
}

TEST(CandidatePairs, AreThoseThatSortingFinds) {
  std::mt19937_64 random(9);
  std::vector<BucketEntry> entries;
  for (std::int64_t d = 0; d < 5000; ++d) {
    for (std::uint64_t band = 0; band < 5; ++band) entries.push_back({mix64(random() % 2000 * 5 + band), d});
  }
  std::vector<DocumentPair> pairs, expected;
  candidate_pairs(entries, 16, [&](const DocumentPair& pair) { pairs.push_back(pair); });
  EXPECT_TRUE(std::ranges::is_sorted(pairs, {}, &DocumentPair::second));
  std::ranges::stable_sort(entries, {}, &BucketEntry::key);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t back = 1; back <= std::min<std::size_t>(i, 16) && entries[i - back].key == entries[i].key;
         ++back) {
      expected.push_back({entries[i - back].document, entries[i].document});
    }
  }
  std::ranges::sort(pairs);
  std::ranges::sort(expected);
  EXPECT_EQ(pairs, expected);
}

TEST(Clusters, JoinALongChainInLinearTime) {
  Clusters clusters;
  constexpr std::int64_t count = 200000;
  for (std::int64_t i = count - 1; i > 0; --i) clusters.unite({i - 1, i});
  EXPECT_EQ(clusters.others().size(), static_cast<std::size_t>(count - 1));
  EXPECT_EQ(clusters.first_of(count - 1), 0);
}

}  // namespace
}  // namespace trireme::data
