"""The widgets of the web page and their wiring; `service` does the work."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..solvers import SOLVERS
from . import render
from .jobs import CHOICES, COMPARED_NFES, MAX_NFE, MAX_SAMPLES, ODE, default_choice
from .service import CANCELLED, ComparisonView, Service, View

if TYPE_CHECKING:
    import gradio as gr

STYLE = Path(__file__).parent / "page.css"
COMPUTE: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "compute"}  # one job at a time over all users
# Event handlers get the browser's raw values: `service` validates them, and our own code decodes images.
RAW: dict[str, Any] = {"preprocess": False, "api_visibility": "private", "show_progress": "hidden"}
REFERENCE = "Clean reference"
FULL = "The queue is full: too many restorations are waiting. Please try again later."
QUEUED = "Waiting: another restoration is running."


def solver_choices() -> list[tuple[str, str]]:
    """The solvers as (label, value) for the menu."""
    titles = {name: row.title for name, row in SOLVERS.items()} | {ODE: "the paper's, without noise"}
    return [(f"{name}: {titles[name]}", name) for name in CHOICES]


def build_page(service: Service, about: str) -> "gr.Blocks":
    """Build the page; `about` is a line on the model and the device."""
    import gradio as gr

    page: gr.Blocks
    with gr.Blocks(title="MR Sampler", analytics_enabled=False) as page:
        gr.HTML(
            f"<h1>MR Sampler</h1><p>Image restoration by mean-reverting diffusion, in a few network evaluations.</p>"
            f'<p class="facts">{escape(about)}</p>',
            elem_id="title",
        )
        with gr.Row(equal_height=False, elem_id="main"):
            with gr.Column(scale=4, min_width=320):
                image, reference = _inputs(service)
                solver, nfe, samples, seed = _settings(service)
            with gr.Column(scale=7, min_width=320), gr.Tabs():
                with gr.Tab("Restore", id="restore"):
                    _restore_tab(service, [image, reference, solver, nfe, seed, samples])
                with gr.Tab("Compare solvers", id="compare"):
                    _compare_tab(service, [image, reference], seed)
        gr.HTML('<p class="facts">Everything is computed on this machine; nothing is sent anywhere else.</p>')

        def leave(request: gr.Request) -> None:
            for button in ("run", "compare"):
                user = f"{request.session_hash}/{button}"
                service.jobs.stop(user)
                service.jobs.was_stopped(user)  # forget it: the page is gone

        page.unload(leave)
    return page


def _inputs(service: Service) -> tuple["gr.Image", "gr.Image"]:
    """Image, reference and examples; uploads are checked at once."""
    import gradio as gr

    shared: dict[str, Any] = {"type": "filepath", "sources": ["upload", "clipboard"], "buttons": ["fullscreen"]}
    image = gr.Image(label="Degraded image", elem_id="image", height=280, **shared)
    problem = gr.HTML(elem_id="problem")
    gr.HTML(f'<p class="facts">{escape(str(service.limits))}. Or try an example:</p>')
    gallery = gr.Gallery(
        [(str(example.degraded), example.task) for example in service.examples],
        show_label=False,
        container=False,
        columns=5,
        object_fit="cover",
        allow_preview=False,
        buttons=[],
        interactive=False,
        elem_id="examples",
    )
    with gr.Accordion(f"{REFERENCE} (optional)", open=False, elem_id="reference-panel") as panel:
        reference = gr.Image(label="Clean reference", elem_id="reference", height=220, show_label=False, **shared)

    def check_image(value: Any) -> tuple[Any, ...]:
        path, text = service.uploaded(value)
        return _shown(path), None, text, gr.Accordion(label=f"{REFERENCE} (optional)")

    def check_reference(value: Any) -> tuple[Any, ...]:
        path, text = service.uploaded(value, "reference")
        return _shown(path), text

    def pick(chosen: gr.SelectData) -> tuple[Any, ...]:
        if not isinstance(chosen.index, int) or not 0 <= chosen.index < len(service.examples):
            return gr.skip(), gr.skip(), render.message("there is no such example"), gr.skip()
        example = service.examples[chosen.index]
        return str(example.degraded), str(example.clean), "", gr.Accordion(label=f"{REFERENCE}: the example's")

    def forget() -> tuple[Any, ...]:
        return None, "", gr.Accordion(label=f"{REFERENCE} (optional)")

    image.upload(check_image, image, [image, reference, problem, panel], queue=False, **RAW)
    image.clear(forget, None, [reference, problem, panel], queue=False, **RAW)
    reference.upload(check_reference, reference, [reference, problem], queue=False, **RAW)
    gallery.select(pick, None, [image, reference, problem, panel], queue=False, **RAW)
    return image, reference


def _shown(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _settings(service: Service) -> tuple["gr.Dropdown", "gr.Slider", "gr.Slider", "gr.Number"]:
    import gradio as gr

    default = default_choice(service.restorer)
    with gr.Group():
        solver = gr.Dropdown(solver_choices(), value=default.solver, label="Solver", elem_id="solver", filterable=False)
        nfe = gr.Slider(
            1, MAX_NFE, default.nfe, step=1, label="Network evaluations (NFE)",
            info="More take longer; 4 to 16 are typical", elem_id="nfe",
        )  # fmt: skip
        samples = gr.Slider(
            1, MAX_SAMPLES, 1, step=1, label="Samples",
            info="With 2 or more: their mean, and a map of where the model is unsure", elem_id="samples",
        )  # fmt: skip
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1, elem_id="seed")
    return solver, nfe, samples, seed


def _buttons(label: str, name: str) -> tuple["gr.Button", "gr.Button"]:
    import gradio as gr

    with gr.Row():
        run = gr.Button(label, variant="primary", elem_id=name, scale=3)
        cancel = gr.Button("Cancel", elem_id=f"cancel-{name}", interactive=False, scale=1, min_width=90)
    return run, cancel


def _restore_tab(service: Service, inputs: list[Any]) -> None:
    import gradio as gr

    run, cancel = _buttons("Restore", "run")
    status = gr.HTML(elem_id="status")
    slider = gr.ImageSlider(
        label="Before and after", elem_id="slider", type="filepath", max_height=640, interactive=False,
        buttons=["fullscreen"],
    )  # fmt: skip
    download = gr.DownloadButton("Download PNG", size="md", elem_id="download", interactive=False)
    summary = gr.HTML(elem_id="summary")
    strip = gr.HTML(elem_id="strip")
    with gr.Row(visible=False, elem_id="unsure") as unsure:
        mean = gr.Image(label="Mean", interactive=False, elem_id="mean", type="filepath", buttons=["download"])
        heat = gr.Image(label="Uncertainty", interactive=False, elem_id="heat", type="filepath", buttons=["download"])
    outputs = [run, cancel, status, slider, download, summary, strip, unsure, mean, heat]

    def shown(view: View) -> dict[Any, Any]:
        updates: dict[Any, Any] = _running(view.running, run, cancel) | {status: view.status}
        if view.summary is not None:
            updates[summary] = view.summary
        if view.strip is not None:
            updates[strip] = view.strip
        if view.pair is not None:
            updates[slider] = tuple(map(str, view.pair))
            updates[download] = gr.DownloadButton(value=str(view.pair[1]), interactive=True)
            updates[unsure] = gr.Row(visible=view.mean is not None)
        if view.mean is not None:
            updates[mean] = str(view.mean)
            label = f"Uncertainty: bright is ±{view.brightest:.0f} of 255"
            updates[heat] = gr.Image(value=str(view.uncertainty), label=label)
        return updates

    def restore(
        image: Any, reference: Any, solver: Any, nfe: Any, seed: Any, samples: Any, request: gr.Request
    ) -> Iterator[dict[Any, Any]]:
        user = _user(request, run)
        for view in service.restoring(image, reference, solver, nfe, seed, samples, user):
            yield shown(view)

    _wire(service, run, cancel, status, restore, inputs, outputs)


def _compare_tab(service: Service, images: list[Any], seed: "gr.Number") -> None:
    import gradio as gr

    default = default_choice(service.restorer)
    with gr.Group():
        solvers = gr.CheckboxGroup(
            list(CHOICES), value=list(dict.fromkeys([default.solver, "mrsampler-pc", "posterior"])), label="Solvers",
            elem_id="solvers",
        )  # fmt: skip
        nfes = gr.CheckboxGroup(
            [(str(nfe), nfe) for nfe in COMPARED_NFES],
            value=[2, 4, 8],
            label="Network evaluations (NFE)",
            elem_id="nfes",
        )
    run, cancel = _buttons("Compare", "compare")
    status = gr.HTML(elem_id="compare-status")
    grid = gr.HTML(elem_id="grid")
    download = gr.DownloadButton("Download as one picture", size="md", elem_id="download-sheet", interactive=False)

    def shown(view: ComparisonView) -> dict[Any, Any]:
        updates: dict[Any, Any] = _running(view.running, run, cancel) | {status: view.status}
        if view.grid is not None:
            updates[grid] = view.grid
        if view.sheet is not None:
            updates[download] = gr.DownloadButton(value=str(view.sheet), interactive=True)
        return updates

    def compare(
        image: Any, reference: Any, solvers: Any, nfes: Any, seed: Any, request: gr.Request
    ) -> Iterator[dict[Any, Any]]:
        for view in service.comparing(image, reference, solvers, nfes, seed, _user(request, run)):
            yield shown(view)

    _wire(service, run, cancel, status, compare, [*images, solvers, nfes, seed], [run, cancel, status, grid, download])


def _running(running: bool, run: "gr.Button", cancel: "gr.Button") -> dict[Any, Any]:
    import gradio as gr

    return {run: gr.Button(interactive=not running), cancel: gr.Button(interactive=running)}


def _user(request: "gr.Request", button: "gr.Button") -> str:
    """Key of a job: the browser's session and the button."""
    return f"{request.session_hash}/{button.elem_id}"


def _wire(
    service: Service,
    run: "gr.Button",
    cancel: "gr.Button",
    status: "gr.HTML",
    work: Any,
    inputs: list[Any],
    outputs: list[Any],
) -> None:
    """The run button queues the work; the cancel button stops it, running or still waiting."""
    import gradio as gr

    def wait(request: gr.Request) -> dict[Any, Any]:
        service.jobs.was_stopped(_user(request, run))  # forget an earlier cancellation
        return _running(True, run, cancel) | {status: render.progress(0, 1, QUEUED)}

    def stop(request: gr.Request) -> dict[Any, Any]:
        service.jobs.stop(_user(request, run))
        return _running(False, run, cancel) | {status: render.message(CANCELLED, "info")}

    def fail(request: gr.Request) -> dict[Any, Any]:  # Gradio also reports a cancelled job as a failure
        cancelled = service.jobs.was_stopped(_user(request, run))
        text = render.message(CANCELLED, "info") if cancelled else render.message(FULL)
        return _running(False, run, cancel) | {status: text}

    waiting = run.click(wait, None, [run, cancel, status], queue=False, **RAW)
    working = waiting.then(work, inputs, outputs, **RAW, **COMPUTE)
    working.failure(fail, None, [run, cancel, status], queue=False, **RAW)
    cancel.click(stop, None, [run, cancel, status], cancels=[working], queue=False, **RAW)
