// The tree of canonical order: the same parentheses however its parts lie on ranks.
#include "engine/averaging/sums/ordered_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backends/group.h"
#include "tests/support/time_limits.h"

namespace engine {
namespace {

// What a fold does, as text: "((0+1)+(2+3))".
std::string folded(std::vector<std::string> parts) {
  reduce_tree(parts.size(), [&](std::size_t a, std::size_t b) {
    parts[a] = "(" + parts[a] + "+" + parts[b] + ")";
  });
  return parts[0];
}

std::vector<std::string> numbers(int first, int count) {
  std::vector<std::string> all;
  for (int part = first; part < first + count; ++part) all.push_back(std::to_string(part));
  return all;
}

void expect_the_same_parentheses(const TreePartition& cut) {
  const int parts = cut.parts();
  const TreePartition::Node* first = cut.nodes().data();
  std::vector<std::string> nodes;
  int at = 0;
  for (const TreePartition::Node& node : cut.nodes()) {
    ASSERT_EQ(node.first, at) << "a part is left out, or there twice";
    at += node.count;
    nodes.push_back(folded(numbers(node.first, node.count)));
  }
  ASSERT_EQ(at, parts);
  cut.fold([&](const TreePartition::Node& a, const TreePartition::Node& b) {
    nodes[static_cast<std::size_t>(&a - first)] +=
        "+" + nodes[static_cast<std::size_t>(&b - first)] + ")";
    nodes[static_cast<std::size_t>(&a - first)].insert(0, "(");
  });
  EXPECT_EQ(nodes[0], folded(numbers(0, parts))) << parts << " parts, " << cut.world() << " ranks";
}

TEST(TreePartition, AnyWorldPutsTheSameParentheses) {
  for (const int parts : {1, 2, 8, 16, 64})
    for (int world = 1; world <= parts; ++world)
      expect_the_same_parentheses(TreePartition(parts, world));
}

TEST(TreePartition, AnyBoundsPutTheSameParentheses) {
  for (int first = 1; first < 16; ++first)
    for (int second = first + 1; second < 16; ++second)
      expect_the_same_parentheses(TreePartition(std::vector{0, first, second, 16}));
  EXPECT_THROW(TreePartition(std::vector{0, 3, 3, 8}), Error);
  EXPECT_THROW(TreePartition(std::vector{1, 3, 8}), Error);
}

TEST(TreePartition, RanksHaveRunsAndTheirLargestNodes) {
  const TreePartition three(8, 3);  // 0 1 | 2 3 4 | 5 6 7
  EXPECT_EQ(three.first(1), 2);
  EXPECT_EQ(three.count(1), 3);
  ASSERT_EQ(three.nodes(1).size(), 2u);
  EXPECT_EQ(three.nodes(1)[0].count, 2);
  EXPECT_EQ(three.nodes(1)[1].first, 4);
  ASSERT_EQ(three.nodes(2).size(), 2u);
  EXPECT_EQ(three.nodes(2)[0].count, 1) << "5 and 6 are no node";
  EXPECT_EQ(three.max_nodes(), 2);
  for (const int world : {1, 2, 4, 6, 7, 8})
    EXPECT_EQ(TreePartition(8, world).max_nodes(), 1)
        << world << " ranks move no more than one sum each";
  EXPECT_EQ(TreePartition(8, 5).nodes().size(), 6u);
}

TEST(TreePartition, WithoutShardsEachRankIsAPart) {
  const TreePartition cut(6, 6);
  std::vector<std::string> ranks = numbers(0, 6);
  cut.fold([&](const TreePartition::Node& a, const TreePartition::Node& b) {
    std::string& into = ranks[static_cast<std::size_t>(a.rank)];
    into = "(" + into + "+" + ranks[static_cast<std::size_t>(b.rank)] + ")";
  });
  EXPECT_EQ(ranks[0], folded(numbers(0, 6)));
}

float element(int part, std::size_t i) {
  return 1.0f / static_cast<float>(1 + (static_cast<std::size_t>(part) * 7919 + i * 31) % 1009);
}

// The sum of each rank of a world, with the notes that it got.
struct Sum {
  std::vector<float> elements;
  std::vector<std::string> notes;
};

std::vector<Sum> sums(int world, std::size_t count) {
  std::vector<Sum> results(static_cast<std::size_t>(world));
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(20'000));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] {
      const auto communicator = groups[static_cast<std::size_t>(rank)]->make_communicator();
      const TreePartition cut(8, world);
      TreeSum sum(cut, *communicator, 5);
      std::vector<std::vector<float>> nodes;
      std::vector<void*> own;
      for (const TreePartition::Node& node : cut.nodes(rank)) {
        std::vector<std::vector<float>> parts(static_cast<std::size_t>(node.count),
                                              std::vector<float>(count));
        for (int p = 0; p < node.count; ++p)
          for (std::size_t i = 0; i < count; ++i)
            parts[static_cast<std::size_t>(p)][i] = element(node.first + p, i);
        reduce_tree(parts.size(), [&](std::size_t a, std::size_t b) {
          for (std::size_t i = 0; i < count; ++i) parts[a][i] += parts[b][i];
        });
        nodes.push_back(parts[0]);
      }
      for (std::vector<float>& node : nodes) own.push_back(node.data());
      const std::string note = "r" + std::to_string(rank);
      std::memcpy(sum.note().data(), note.c_str(), note.size() + 1);
      sum.sum(DType::kF32, own, count);
      Sum& result = results[static_cast<std::size_t>(rank)];
      result.elements = nodes[0];
      for (int r = 0; r < world; ++r)
        result.notes.emplace_back(reinterpret_cast<const char*>(sum.note_of(r).data()));
    });
  for (std::thread& rank : ranks) rank.join();
  return results;
}

TEST(TreeSum, IsTheSameForEveryWorldAndEveryNumberOfBlocks) {
  constexpr std::size_t kBlock = (1 << 20) / sizeof(float);
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, kBlock, 2 * kBlock + 16}) {
    const std::vector<float> expected = sums(1, count)[0].elements;
    for (int world = 1; world <= 8; ++world) {
      SCOPED_TRACE(std::to_string(world) + " ranks, " + std::to_string(count) + " elements");
      for (const Sum& of_rank : sums(world, count)) {
        EXPECT_EQ(of_rank.elements, expected);
        for (int r = 0; r < world; ++r)
          EXPECT_EQ(of_rank.notes[static_cast<std::size_t>(r)], "r" + std::to_string(r));
      }
    }
  }
}

}  // namespace
}  // namespace engine
