// Trains the perceptron of define.py: feeds random batches, fetches the cost, saves the weights. No Python takes part.
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "hloom.hpp"
#include "perceptron.h"

int main(int count, char **arguments) try {
  const std::int64_t batch = 100;
  const int steps = 200;
  hloom::Program model(perceptron_library(), /*num_threads=*/1);
  model.check(perceptron_init(model.get()));

  std::mt19937 random(0);
  std::vector<float> x(batch * 32), y(batch * 8);
  for (float &value : x) value = static_cast<float>(random() >> 8) / (1 << 24);
  for (float &value : y) value = static_cast<float>(random() >> 8) / (1 << 24);

  // Arrays by name, or plain pointers: the same call.
  float first, last;
  model.run("cost", {{"x", hloom::view(x, {batch, 32})}, {"y", hloom::view(y, {batch, 8})}},
            {{"result", hloom::view(&first, {})}});
  const auto started = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; step++) {
    model.check(perceptron_train(model.get(), x.data(), y.data(), &last));
    if (step % 50 == 0) std::printf("cost %d %.3f\n", step, last);
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - started;
  model.check(perceptron_cost(model.get(), x.data(), y.data(), &last));
  std::printf("cost %.3f -> %.3f; %.0f us a step\n", first, last, time.count() / steps);
  if (count > 1) model.save_state(arguments[1]);
  return last < first ? 0 : 1;
} catch (const hloom::Error &error) {
  std::fprintf(stderr, "error %d: %s\n", error.status(), error.what());
  return 2;
}
