#include "trireme/comm/known_models.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(KnownModels, HaveAsManyParametersAndFlopsAsTheirPapersSay) {
  struct Size {
    int64_t parameters;
    double giga_flops;
  };
  // Of torchvision's models and Hugging Face's; flops of a sample, two a multiply-add.
  const std::map<std::string_view, Size> sizes = {{"vgg-16", {138'357'544, 30.9}},
                                                  {"resnet-50", {25'557'032, 8.2}},
                                                  {"gpt-2", {124'439'808, 290}}};
  for (const KnownModel& model : known_models()) {
    SCOPED_TRACE(std::string(model.name));
    int64_t parameters = 0;
    double flops = 0;
    for (const KnownLayer& layer : model.layers()) {
      parameters += layer.num_parameters;
      flops += layer.flops;
    }
    if (model.name == "lstm-lm") {
      // Two tables and an LSTM with a projection.
      EXPECT_EQ(parameters, 2 * 793'471 * 512 + 4 * 2048 * 1025 + 2048 * 512);
      continue;
    }
    const Size& size = sizes.at(model.name);
    EXPECT_EQ(parameters, size.parameters);
    EXPECT_NEAR(flops * 1e-9, size.giga_flops, 0.03 * size.giga_flops);
  }
}

TEST(KnownModels, TakeTheTimeTheyAreGiven) {
  for (const KnownModel& model : known_models()) {
    SimTime sum = 0;
    for (const LayerCosts& layer : layer_costs(model.layers(), 100'000'000)) {
      EXPECT_GT(layer.forward, 0);
      EXPECT_NEAR(static_cast<double>(layer.backward), 2.0 * static_cast<double>(layer.forward), 2);
      sum += layer.forward + layer.backward;
    }
    EXPECT_NEAR(static_cast<double>(sum), 1e8, 200);
  }
}

}  // namespace
}  // namespace trireme
