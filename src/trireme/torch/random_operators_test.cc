#include "trireme/torch/random_operators.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "trireme/graph/draws.h"
#include "trireme/torch/draw_stream.h"
#include "trireme/torch/recurrent.h"

namespace trireme {
namespace {

constexpr int64_t kCount = 40'000;
constexpr int64_t kCompared = 10'000;  // sorted, so fewer
constexpr DrawStream kStream = {.key = 0xfeedbeef12345678, .first_sample = 3, .batch_dim = 0};
using Given = std::map<std::string, c10::IValue>;

// Calls "bernoulli_.float" and the like by name; defaults as in the schema.
std::vector<at::Tensor> call(const std::string& op, const Given& given, at::ScalarType dtype,
                             const DrawStream& stream = kStream) {
  const size_t dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + op.substr(0, dot)).c_str(), overload.c_str());
  std::vector<c10::IValue> values;
  for (const c10::Argument& formal : handle.schema().arguments()) {
    const auto found = given.find(formal.name());
    values.push_back(found != given.end()                 ? found->second
                     : formal.default_value().has_value() ? *formal.default_value()
                                                          : c10::IValue());
  }
  const std::string node =
      "aten." + op.substr(0, dot) + "." + (overload.empty() ? "default" : overload);
  const RandomOperator* random = find_random_operator(node);
  EXPECT_NE(random, nullptr) << op;
  return run_random(*random, node, {CallArguments(handle.schema(), values), stream, dtype});
}

at::Tensor draw(const std::string& op, const Given& given, at::ScalarType dtype = at::kDouble) {
  return call(op, given, dtype)[0];
}

c10::IValue sizes(std::vector<int64_t> each) { return c10::List<int64_t>(std::move(each)); }
at::Tensor blank(at::ScalarType dtype = at::kDouble, int64_t count = kCount) {
  return at::empty({count}, dtype);
}

// The largest distance of two samples' distribution functions stays below 1.95 sqrt(2 / n) but once
// in a thousand seeds; ours is fixed, torch's is seeded.
void expect_same_distribution(const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
  const at::Tensor a = std::get<0>(ours.flatten().to(at::kDouble).sort());
  const at::Tensor b = std::get<0>(theirs.flatten().to(at::kDouble).sort());
  const at::Tensor all = at::cat({a, b});
  const at::Tensor distance =
      at::searchsorted(a, all, false, /*right=*/true).to(at::kDouble) / a.numel() -
      at::searchsorted(b, all, false, /*right=*/true).to(at::kDouble) / b.numel();
  EXPECT_LT(distance.abs().max().item<double>(), 1.95 * std::sqrt(2.0 / kCompared)) << what;
}

TEST(RandomOperators, EveryRuleOfADrawHasAKernelOrSaysWhatToDoInstead) {
  for (const DrawRule& rule : draw_rules()) {
    const bool has_kernel =
        find_random_operator("aten." + std::string(rule.name) + ".default") != nullptr;
    EXPECT_EQ(has_kernel, rule.instead.empty()) << rule.name;
  }
}

TEST(RandomOperators, HaveTheDistributionsOfTorch) {
  at::manual_seed(5);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto theirs = [&] { return blank(type, kCompared); };
    const Given self = {{"self", blank(type, kCompared)}};
    const auto with = [&](Given more) {
      more["self"] = blank(type, kCompared);
      return more;
    };
    const c10::IValue size = sizes({kCompared});
    expect_same_distribution(draw("rand", {{"size", size}}, type), theirs().uniform_(), "rand");
    expect_same_distribution(draw("randn", {{"size", size}}, type), theirs().normal_(), "randn");
    expect_same_distribution(draw("rand_like", self, type), theirs().uniform_(), "rand_like");
    expect_same_distribution(draw("randn_like", self, type), theirs().normal_(), "randn_like");
    expect_same_distribution(draw("uniform_", with({{"from", -2.0}, {"to", 3.0}}), type),
                             theirs().uniform_(-2, 3), "uniform_");
    expect_same_distribution(draw("normal_", with({{"mean", 1.0}, {"std", 0.5}}), type),
                             theirs().normal_(1, 0.5), "normal_");
    expect_same_distribution(draw("exponential_", with({{"lambd", 2.0}}), type),
                             theirs().exponential_(2), "exponential_");
    expect_same_distribution(draw("log_normal_", with({{"mean", 0.1}, {"std", 0.7}}), type),
                             theirs().log_normal_(0.1, 0.7), "log_normal_");
    expect_same_distribution(draw("cauchy_", with({{"median", 1.0}, {"sigma", 2.0}}), type),
                             theirs().cauchy_(1, 2), "cauchy_");
    expect_same_distribution(draw("geometric_", with({{"p", 0.3}}), type), theirs().geometric_(0.3),
                             "geometric_");
    expect_same_distribution(draw("random_", self, type), theirs().random_(), "random_");
    expect_same_distribution(draw("randint.low", {{"low", -5}, {"high", 40}, {"size", size}}, type),
                             theirs().random_(-5, 40), "randint");
  }
  const at::Tensor mean = at::linspace(-1, 1, kCompared, at::kDouble);
  const at::Tensor std = at::linspace(0, 3, kCompared, at::kDouble);
  expect_same_distribution(draw("normal.Tensor_Tensor", {{"mean", mean}, {"std", std}}),
                           at::normal(mean, std), "normal.Tensor_Tensor");
  expect_same_distribution(draw("normal.float_Tensor", {{"mean", 2.0}, {"std", std}}),
                           at::normal(2.0, std), "normal.float_Tensor");
  expect_same_distribution(draw("normal.Tensor_float", {{"mean", mean}, {"std", 2.0}}),
                           at::normal(mean, 2.0), "normal.Tensor_float");
}

TEST(RandomOperators, HaveTheMomentsOfTheirDistributions) {
  const double count = kCount;
  const at::Tensor uniform = draw("rand", {{"size", sizes({kCount})}});
  EXPECT_NEAR(uniform.mean().item<double>(), 0.5, 5 * std::sqrt(1 / 12.0 / count));
  // The variance of a sample's variance of a uniform distribution is 1 / 180 n.
  EXPECT_NEAR(uniform.var().item<double>(), 1 / 12.0, 5 * std::sqrt(1 / 180.0 / count));
  const at::Tensor normal = draw("randn", {{"size", sizes({kCount})}});
  EXPECT_NEAR(normal.mean().item<double>(), 0, 5 / std::sqrt(count));
  EXPECT_NEAR(normal.var().item<double>(), 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3, 5 * std::sqrt(96 / count));
}

TEST(RandomOperators, StayInTheirRanges) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const at::Tensor unit = draw("rand", {{"size", sizes({kCount})}}, type);
    EXPECT_TRUE(at::logical_and(unit >= 0, unit < 1).all().item<bool>()) << type;
    const at::Tensor range =
        draw("uniform_", {{"self", blank(type)}, {"from", 1.0}, {"to", 1.015625}}, type);
    EXPECT_TRUE(at::logical_and(range >= 1, range < 1.015625).all().item<bool>()) << type;
    EXPECT_TRUE((draw("exponential_", {{"self", blank(type)}}, type) >= 0).all().item<bool>());
  }
  const at::Tensor dice =
      draw("randint.low", {{"low", 1}, {"high", 7}, {"size", sizes({kCount})}}, at::kLong);
  const at::Tensor counts = at::bincount(dice, {}, 7);
  EXPECT_EQ(counts[0].item<int64_t>(), 0);
  EXPECT_EQ(counts.numel(), 7);
  const double sigma = std::sqrt(kCount * 5 / 36.0);
  for (int face = 1; face <= 6; ++face) {
    EXPECT_NEAR(counts[face].item<double>(), kCount / 6.0, 5 * sigma) << face;
  }
}

TEST(RandomOperators, BernoulliTakesProbabilitiesAsNumbersAndTensors) {
  const at::Tensor p = at::linspace(0, 1, 5, at::kDouble);
  const at::Tensor x = at::zeros({kCount, 5});
  const auto check = [&](const at::Tensor& drawn, const at::Tensor& expected) {
    EXPECT_TRUE(at::logical_or(drawn == 0, drawn == 1).all().item<bool>());
    const at::Tensor share = drawn.to(at::kDouble).mean(0);
    const at::Tensor sigma = (expected * (1 - expected) / static_cast<double>(kCount)).sqrt();
    EXPECT_TRUE(((share - expected).abs() <= 5 * sigma).all().item<bool>()) << share;
  };
  check(draw("bernoulli", {{"self", p.expand({kCount, 5})}}), p);
  check(draw("bernoulli.p", {{"self", x}, {"p", 0.25}}, at::kFloat),
        at::full({5}, 0.25, at::kDouble));
  check(draw("bernoulli_.float", {{"self", x.clone()}, {"p", 0.75}}, at::kFloat),
        at::full({5}, 0.75, at::kDouble));
  check(draw("bernoulli_.Tensor", {{"self", x.clone()}, {"p", p}}, at::kFloat), p);
}

TEST(RandomOperators, MultinomialDrawsCategoriesByWeight) {
  const at::Tensor weights = at::tensor({0.0, 1.0, 3.0, 0.0, 4.0, 0.0}, at::kDouble);
  const at::Tensor rows = weights.expand({kCount, 6});
  const at::Tensor expected = weights / weights.sum();
  for (const bool replaces : {true, false}) {
    const at::Tensor drawn = draw(
        "multinomial", {{"self", rows}, {"num_samples", 2}, {"replacement", replaces}}, at::kLong);
    EXPECT_EQ(drawn.sizes(), (std::vector<int64_t>{kCount, 2}));
    const at::Tensor share = at::bincount(drawn.select(1, 0), {}, 6).to(at::kDouble) / kCount;
    const at::Tensor sigma = (expected * (1 - expected) / static_cast<double>(kCount)).sqrt();
    EXPECT_TRUE(((share - expected).abs() <= 5 * sigma).all().item<bool>()) << share;
    const double equal =
        (drawn.select(1, 0) == drawn.select(1, 1)).to(at::kDouble).mean().item<double>();
    const double chance = (expected * expected).sum().item<double>();
    if (replaces) {
      EXPECT_NEAR(equal, chance, 5 * std::sqrt(chance * (1 - chance) / kCount));
    } else {
      EXPECT_EQ(equal, 0);
      // The second given the first: category 2 after 1 with 3/7, and so on.
      const at::Tensor second = at::bincount(drawn.select(1, 1), {}, 6).to(at::kDouble) / kCount;
      const double wanted = 1 / 8.0 * 3 / 7.0 + 4 / 8.0 * 3 / 4.0;
      EXPECT_NEAR(second[2].item<double>(), wanted, 5 * std::sqrt(wanted * (1 - wanted) / kCount));
    }
  }
  EXPECT_EQ(draw("multinomial", {{"self", weights}, {"num_samples", 3}, {"replacement", false}},
                 at::kLong)
                .dim(),
            1);
}

TEST(RandomOperators, RandpermIsAPermutation) {
  const DrawStream stream = {.key = 9};
  const at::Tensor drawn = call("randperm", {{"n", 1000}}, at::kLong, stream)[0];
  EXPECT_TRUE(at::equal(std::get<0>(drawn.sort()), at::arange(1000)));
  EXPECT_LT((drawn == at::arange(1000)).sum().item<int64_t>(), 10);
  EXPECT_FALSE(
      at::equal(drawn, call("randperm", {{"n", 1000}}, at::kLong, substream(stream, 1))[0]));
}

TEST(RandomOperators, DependNeitherOnTheSplitNorOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const char* op : {"rand_like", "randn_like", "alpha_dropout", "feature_dropout", "rrelu"}) {
    const auto run = [&](const at::Tensor& x, int64_t first) {
      DrawStream stream = kStream;
      stream.first_sample = first;
      return call(op,
                  {{"self", x},
                   {"input", x},
                   {"p", 0.4},
                   {"train", true},
                   {"training", true},
                   {"lower", 0.1},
                   {"upper", 0.4}},
                  at::kFloat, stream)[0];
    };
    const at::Tensor x = at::arange(12 * 3000, at::kFloat).view({12, 30, 100}) - 18000;
    at::set_num_threads(1);
    const at::Tensor whole = run(x, 5);
    const at::Tensor split = at::cat({run(x.narrow(0, 0, 5), 5), run(x.narrow(0, 5, 7), 10)});
    at::set_num_threads(3);
    const at::Tensor threaded = run(x, 5);
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(whole, split)) << op;
    EXPECT_TRUE(at::equal(whole, threaded)) << op;
    EXPECT_FALSE(at::equal(whole, run(x, 6))) << op;
  }
}

// The derivative by central differences of a sum weighted at random.
void expect_right_gradient(const std::function<at::Tensor(const at::Tensor&)>& function,
                           const at::Tensor& at_point, const char* what) {
  at::manual_seed(3);
  const at::Tensor x = at_point.clone().requires_grad_();
  const at::Tensor y = function(x);
  const at::Tensor weights = at::randn_like(y.detach());
  (y * weights).sum().backward();
  const double step = 1e-6;
  for (int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor change = at::zeros_like(at_point);
    change.view(-1)[i] = step;
    const double up = (function(at_point + change) * weights).sum().item<double>();
    const double down = (function(at_point - change) * weights).sum().item<double>();
    EXPECT_NEAR(x.grad().view(-1)[i].item<double>(), (up - down) / (2 * step), 1e-7)
        << what << " " << i;
  }
}

TEST(RandomOperators, HaveTheGradientOfWhatTheyComputed) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({4, 3, 5}, at::kDouble);
  const Given options = {
      {"p", 0.4}, {"train", true}, {"training", true}, {"lower", 0.1}, {"upper", 0.4}};
  for (const char* op : {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
                         "rrelu", "rrelu_with_noise", "alpha_dropout_", "rrelu_"}) {
    expect_right_gradient(
        [&](const at::Tensor& given) {
          Given arguments = options;
          // In place of a tensor that is no leaf.
          const at::Tensor value = given * 1;
          arguments["self"] = arguments["input"] = value;
          arguments["noise"] = at::empty_like(value);
          return call(op, arguments, at::kDouble)[0];
        },
        x, op);
  }
}

TEST(RandomOperators, DropAndScaleAsTheirFunctionsDo) {
  const at::Tensor x = at::randn({50, 40, 7}, at::kDouble) + 10;
  const Given given = {{"input", x}, {"p", 0.25}, {"train", true}};
  const at::Tensor channels = call("feature_dropout", given, at::kDouble)[0] / x;
  EXPECT_TRUE(at::equal(channels, channels.narrow(2, 0, 1).expand_as(channels)) ||
              at::allclose(channels, channels.narrow(2, 0, 1).expand_as(channels), 1e-14, 0));
  const double share = (channels.select(2, 0) != 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(share, 0.75, 5 * std::sqrt(0.75 * 0.25 / 2000));
  EXPECT_NEAR(channels.max().item<double>(), 1 / 0.75, 1e-12);
  // Alpha dropout keeps mean 0 and variance 1.
  const at::Tensor normal = at::randn({kCount}, at::kDouble);
  const at::Tensor kept =
      call("alpha_dropout", {{"input", normal}, {"p", 0.25}, {"train", true}}, at::kDouble)[0];
  EXPECT_NEAR(kept.mean().item<double>(), 0, 5 / std::sqrt(double{kCount}));
  EXPECT_NEAR(kept.var().item<double>(), 1, 5 * std::sqrt(4.0 / kCount));
  for (const char* op : {"feature_dropout", "alpha_dropout", "feature_alpha_dropout"}) {
    const at::Tensor none = call(op, {{"input", x}, {"p", 1.0}, {"train", true}}, at::kDouble)[0];
    EXPECT_TRUE(at::equal(none, at::zeros_like(x))) << op;
  }
}

std::vector<at::Tensor> recurrent(const char* op, double p, bool is_bidirectional,
                                  const at::Tensor& x) {
  const std::string name(op);
  const int64_t directions = is_bidirectional ? 2 : 1;
  const int64_t gates = name == "lstm" ? 4 : name == "gru" ? 3 : 1;
  const int64_t layers = 3;
  const int64_t hidden = 4;
  at::manual_seed(6);
  c10::List<at::Tensor> params;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t d = 0; d < directions; ++d) {
      params.push_back(
          at::randn({gates * hidden, layer == 0 ? x.size(2) : hidden * directions}, at::kDouble));
      params.push_back(at::randn({gates * hidden, hidden}, at::kDouble));
      params.push_back(at::randn({gates * hidden}, at::kDouble));
      params.push_back(at::randn({gates * hidden}, at::kDouble));
    }
  }
  const at::Tensor state = at::randn({layers * directions, x.size(0), hidden}, at::kDouble);
  Given given = {{"input", x},
                 {"params", params},
                 {"has_biases", true},
                 {"num_layers", layers},
                 {"dropout", p},
                 {"train", true},
                 {"bidirectional", is_bidirectional},
                 {"batch_first", true}};
  given["hx"] = name == "lstm" ? c10::IValue(c10::List<at::Tensor>({state, state * 0.5}))
                               : c10::IValue(state);
  if (p > 0) return call(name + ".input", given, at::kDouble);
  // Ours with p = 0 is not reached through the graph, where such a layer draws nothing.
  std::vector<at::Tensor> ours = call(name + ".input", given, at::kDouble);
  std::vector<c10::IValue> stack;
  const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name).c_str(), "input");
  for (const c10::Argument& formal : handle.schema().arguments())
    stack.push_back(given.at(formal.name()));
  handle.callBoxed(stack);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::equal(ours[i], stack[i].toTensor())) << op << " " << i;
  }
  return ours;
}

TEST(RandomOperators, RecurrentLayersWithoutDropoutAreTorchsBitForBit) {
  const at::Tensor x = at::randn({5, 6, 3}, at::kDouble);
  for (const char* op : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const bool is_bidirectional : {false, true}) {
      const std::vector<at::Tensor> all = recurrent(op, 0, is_bidirectional, x);
      const std::vector<at::Tensor> dropped = recurrent(op, 0.5, is_bidirectional, x);
      ASSERT_EQ(all.size(), dropped.size());
      EXPECT_EQ(all[0].sizes(), dropped[0].sizes());
      EXPECT_FALSE(at::equal(all[0], dropped[0])) << op;
      // The first layer sees no dropout, nor does the input.
      EXPECT_TRUE(at::equal(all[1][0], dropped[1][0])) << op;
    }
    expect_right_gradient(
        [&](const at::Tensor& given) { return recurrent(op, 0.5, false, given)[0]; },
        x.narrow(0, 0, 2).narrow(1, 0, 3).clone(), op);
  }
}

TEST(RandomOperators, RefuseWhatIsNoDistribution) {
  const auto fails = [](const std::string& op, const Given& given,
                        at::ScalarType dtype = at::kDouble) {
    EXPECT_THROW(call(op, given, dtype), c10::Error) << op;
  };
  const at::Tensor x = at::ones({3});
  fails("bernoulli_.float", {{"self", x}, {"p", 1.5}});
  fails("exponential_", {{"self", x}, {"lambd", 0.0}});
  fails("normal_", {{"self", x}, {"std", -1.0}});
  fails("multinomial", {{"self", at::zeros({2, 3})}, {"num_samples", 1}, {"replacement", true}});
  fails("multinomial", {{"self", x}, {"num_samples", 4}, {"replacement", false}});
  fails("randint", {{"high", 0}, {"size", sizes({3})}});
  fails("randn", {{"size", sizes({3})}}, at::kComplexDouble);
}

}  // namespace
}  // namespace trireme
