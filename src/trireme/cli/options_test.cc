#include <gtest/gtest.h>

#include "trireme/cli/request.h"

namespace trireme {
namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  const Request request = parse_request("trireme", arguments);
  const auto* nothing = std::get_if<NothingToDo>(&request);
  if (nothing == nullptr) return "accepted";
  EXPECT_EQ(nothing->exit_code, 2);
  return nothing->output;
}

TEST(Options, DefaultsAreThoseThatOthersScriptAgainst) {
  const Request request = parse_request(
      "trireme", {"train", "m.pt2", "--data", "bytes:x", "--batch", "8", "--steps", "3"});
  const RunRequest& run = std::get<RunRequest>(request);
  EXPECT_FALSE(run.plan.pp.has_value());
  EXPECT_EQ(run.plan.dp, 1);
  EXPECT_FALSE(run.plan.micro_batches.has_value());
  EXPECT_EQ(run.plan.schedule, "1f1b");
  EXPECT_EQ(run.threads, 1);
  EXPECT_EQ(run.optimizer.name, "adamw");
  EXPECT_EQ(run.lr, 1e-3);
  EXPECT_EQ(run.optimizer.beta1, 0.9);
  EXPECT_EQ(run.optimizer.beta2, 0.999);
  EXPECT_EQ(run.optimizer.eps, 1e-8);
  EXPECT_FALSE(run.clip_norm.has_value());
  EXPECT_EQ(run.seed, 0u);
  EXPECT_TRUE(run.shuffles);
}

TEST(Options, ReadsListsAndPairs) {
  const Request request =
      parse_request("trireme", {"train", "m.pt2", "--data", "bytes:x", "--batch", "8", "--epochs",
                                "1", "--cut", "h.1,h.2", "--pp", "3", "--betas", "0.8,0.95",
                                "--lr-schedule", "cosine", "--no-shuffle"});
  const RunRequest& run = std::get<RunRequest>(request);
  EXPECT_EQ(run.plan.cut, (std::vector<std::string>{"h.1", "h.2"}));
  EXPECT_EQ(run.optimizer.beta1, 0.8);
  EXPECT_EQ(run.optimizer.beta2, 0.95);
  EXPECT_EQ(run.lr_schedule, LearningRateKind::kCosine);
  EXPECT_FALSE(run.shuffles);
}

// `trireme train` with what it needs, and these options.
std::string train_refusal(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"train",   "m.pt2", "--data",  "bytes:x",
                                        "--batch", "8",     "--steps", "1"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return refusal(arguments);
}

TEST(Options, RefusesWhatContradictsItself) {
  EXPECT_EQ(refusal({"train", "m.pt2", "--data", "bytes:x", "--batch", "8"}),
            "trireme: train needs --steps or --epochs\n");
  EXPECT_EQ(train_refusal({"--save-every", "2"}), "trireme: --save-every needs --save\n");
  EXPECT_EQ(train_refusal({"--eval-every", "2"}),
            "trireme: --eval-every and --eval-batches need --eval-data\n");
  EXPECT_EQ(train_refusal({"--optimizer", "sgd", "--nesterov"}),
            "trireme: --nesterov needs --momentum greater than 0\n");
  EXPECT_EQ(train_refusal({"--momentum", "0.9"}),
            "trireme: --momentum is for --optimizer sgd, not adamw\n");
  EXPECT_EQ(train_refusal({"--nesterov"}),
            "trireme: --nesterov is for --optimizer sgd, not adamw\n");
  EXPECT_EQ(train_refusal({"--optimizer", "sgd", "--betas", "0.9,0.99"}),
            "trireme: --betas is for --optimizer adamw, not sgd\n");
  EXPECT_EQ(train_refusal({"--optimizer", "sgd", "--eps", "1e-6"}),
            "trireme: --eps is for --optimizer adamw, not sgd\n");
  EXPECT_EQ(train_refusal({"--plan", "p.yaml", "--pp", "2"}),
            "trireme: --plan p.yaml already says what --pp says; leave one of them out\n");
  EXPECT_EQ(refusal({"trian"}),
            "trireme: there is no command trian; known are inspect, plan, policies, schedule, "
            "profile, probe, "
            "simulate, tune-comm, "
            "rehearse, report, train, "
            "eval; see "
            "trireme "
            "--help\n");
}

TEST(Options, RefusesNumbersThatDoNotTrain) {
  EXPECT_EQ(train_refusal({"--lr", "-1"}), "trireme: --lr -1 must be at least 0\n");
  EXPECT_EQ(train_refusal({"--lr", "nan"}), "trireme: --lr nan must be at least 0\n");
  EXPECT_EQ(train_refusal({"--lr", "inf"}), "trireme: --lr inf must be at least 0 and finite\n");
  EXPECT_EQ(train_refusal({"--optimizer", "sgd", "--momentum", "-0.5"}),
            "trireme: --momentum -0.5 must be at least 0\n");
  EXPECT_EQ(train_refusal({"--betas", "1,0.9"}),
            "trireme: --betas 1 must be at least 0 and less than 1\n");
  EXPECT_EQ(train_refusal({"--betas", "0.9,1"}),
            "trireme: --betas 1 must be at least 0 and less than 1\n");
  EXPECT_EQ(train_refusal({"--eps", "-1"}), "trireme: --eps -1 must be at least 0\n");
  EXPECT_EQ(train_refusal({"--weight-decay", "-1"}),
            "trireme: --weight-decay -1 must be at least 0\n");
  EXPECT_EQ(train_refusal({"--clip-norm", "0"}), "trireme: --clip-norm 0 must be greater than 0\n");
  EXPECT_EQ(train_refusal({"--clip-norm", "nan"}),
            "trireme: --clip-norm nan must be greater than 0\n");
}

TEST(Options, QuotesWhatItRefusesInOneLine) {
  EXPECT_EQ(
      refusal({"train\x1b[2J"}),
      "trireme: there is no command train\\x1b[2J; known are inspect, plan, policies, schedule, "
      "profile, probe, simulate, tune-comm, "
      "rehearse, report, train, eval; "
      "see trireme --help\n");
  EXPECT_EQ(refusal({"inspect", "m.pt2", "--no\nsuch"}),
            "trireme: inspect does not take --no\\x0asuch; see trireme inspect --help\n");
  EXPECT_LT(refusal({"plan", "m.pt2", "--pp", std::string(50'000, '\b')}).size(), 2100U);
}

TEST(Options, HelpGoesToStdoutWithExamples) {
  const Request request = parse_request("trireme", {"--help"});
  const NothingToDo& help = std::get<NothingToDo>(request);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("trireme train gpt.pt2"), std::string::npos);
  const Request train = parse_request("trireme", {"train", "--help"});
  const std::string& text = std::get<NothingToDo>(train).output;
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_NE(text.find("lr (1+cos(pi u))/2"), std::string::npos);
}

}  // namespace
}  // namespace trireme
