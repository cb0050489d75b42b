// Draw each chart of the page when it comes near the window, and all of them for a printer.
const draw = (place) => {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const spec = JSON.parse(place.querySelector("script").textContent);
  const container = place.querySelector("div");
  const runtime = vega.parse(vegaLite.compile(spec).spec);
  new vega.View(runtime, { renderer: "svg", container, hover: true }).run();
};
const charts = [...document.querySelectorAll(".chart")];
const near = new IntersectionObserver(
  (found) => found.filter((each) => each.isIntersecting).forEach((each) => draw(each.target)),
  { rootMargin: "400px" },
);
charts.forEach((place) => near.observe(place));
addEventListener("beforeprint", () => charts.forEach(draw));
