"""A run's folder, claimed and begun, where nothing has to be loaded in between."""

from lyceum.run.folder import Run


def begun_run(root, name, recipe, **how):
    run = Run.claim(root, name, recipe, **how)
    try:
        run.begin()
    except BaseException as error:
        run.undo(error)
        raise
    return run
